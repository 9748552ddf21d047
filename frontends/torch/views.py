"""Propagate writes through a view to the tensor that it is a view of.

PyTorch computes the elements of a view: its operator runs on the numbers 0, 1, 2, ... instead of
the elements. So every operator that only moves elements can be inverted.
"""

import operator
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.slices import put_at
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape
from pockengine.frontends.torch.nodes import arguments_of, name_of

Known = Tensor | torch.Tensor


def put_back(g: Builder, whole: Tensor, part: Tensor, view: Node, origin: Node) -> Tensor:
    """Return `whole`, the value of `origin`, with the elements that `view` shows from `part`.

    Raises Unsupported if the view shows an element twice, or is not made by moving elements.
    """
    places = _places(view, origin)
    if places.numel() == whole.size:
        order = sorted(range(places.dim()), key=lambda dim: -places.stride(dim))
        if places.permute(order).is_contiguous():
            return reshape(g, permute(part, order) if part.rank else part, whole.shape)
    for dim in range(whole.rank):
        index = _along(places, whole.shape, dim)
        if index is not None:
            shape = (*whole.shape[:dim], len(index), *whole.shape[dim + 1 :])
            return _replaced(g, whole, reshape(g, part, shape), dim=dim, index=index)
    flat = [reshape(g, plain(framework_order(g, x)), (x.size,)) for x in (whole, part)]
    sources = np.arange(whole.size)
    sources[places.flatten().numpy()] = whole.size + np.arange(part.size)
    picked = g.take(emit.concat(g, flat, 0).value, g.constant(sources), axis=0)
    return reshape(g, plain(picked), whole.shape)


def begins_at(view: Node) -> tuple[int, Any]:
    """Return the dimension that a view slices, and the slice's start; a Node if it is data."""
    if name_of(view) not in ("narrow", "select", "slice"):
        return 0, 0
    _, dim, start, *_ = arguments_of(view).values()
    return dim, start


def put_back_at(g: Builder, whole: Tensor, part: Tensor, dim: int, start: Tensor) -> Tensor:
    """Write to a slice whose start is data; `select` then drops its dimension."""
    dim %= whole.rank
    if part.rank < whole.rank:
        part = reshape(g, part, (*part.shape[:dim], 1, *part.shape[dim:]))
    return put_at(g, whole, part, {dim: start})


def put_back_constant(
    whole: torch.Tensor, part: torch.Tensor, view: Node, origin: Node
) -> torch.Tensor:
    """Write to tensors that are constant at import."""
    flat = whole.flatten().clone()
    flat[_places(view, origin).flatten()] = part.flatten()
    return flat.reshape(whole.shape)


def _places(view: Node, origin: Node) -> torch.Tensor:
    """Return each view element's index in the flattened origin."""
    value = origin.meta["val"]
    numbers = torch.arange(value.numel()).reshape(value.shape)
    shown = view.meta["val"]
    places = numbers if same_view(shown, value) else _moved(view, origin, numbers)
    if not isinstance(places, torch.Tensor) or places.shape != shown.shape:
        raise Unsupported(f"writing through a view made by {_maker(view).target}")
    if value.dtype is not shown.dtype:
        raise Unsupported("writing through a view of another type; write to the tensor itself")
    if places.unique().numel() != places.numel():
        raise Unsupported(
            "writing through a view that shows an element more than once (expand, unfold); "
            "clone it before"
        )
    return places


def same_view(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one memory show the same elements in the same order."""
    return (one.dtype, one.shape, one.stride(), one.storage_offset()) == (
        other.dtype,
        other.shape,
        other.stride(),
        other.storage_offset(),
    )


def _moved(view: Node, origin: Node, numbers: torch.Tensor) -> Any:
    """Apply the operator that made a view to other elements."""
    maker = _maker(view)

    def stand_in(source: Node) -> torch.Tensor:
        if source is origin:
            return numbers
        return torch.empty(source.meta["val"].shape, dtype=source.meta["val"].dtype)

    args, kwargs = torch.fx.map_arg((maker.args, maker.kwargs), stand_in)
    try:
        result = maker.target(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError) as error:
        raise Unsupported(f"writing through a view made by {maker.target}") from error
    return result if maker is view else result[view.args[1]]


def _maker(view: Node) -> Node:
    """Return the operator of a view; for a part of a list, the operator of the list."""
    return view.args[0] if view.target is operator.getitem else view


def _along(places: torch.Tensor, shape: tuple[int, ...], dim: int) -> np.ndarray | None:
    """Return the indices of one dimension whose slices these places are; None if not so."""
    numbers = torch.arange(int(np.prod(shape))).reshape(shape)
    first = numbers.select(dim, 0).numel()
    if not places.numel() or places.numel() % first:
        return None
    inner = int(np.prod(shape[dim + 1 :]))
    index = (places.flatten() // inner % shape[dim]).unique()
    picked = numbers.index_select(dim, index)
    if picked.numel() != places.numel() or not torch.equal(picked.flatten(), places.flatten()):
        return None
    return np.asarray(index.numpy())


def _replaced(g: Builder, whole: Tensor, part: Tensor, dim: int, index: np.ndarray) -> Tensor:
    """Replace slices of one dimension."""
    size, first, last = whole.shape[dim], int(index[0]), int(index[-1]) + 1
    if len(index) == last - first:
        return emit.concat(
            g,
            [
                *_pieces(g, whole, dim, start=0, stop=first),
                part,
                *_pieces(g, whole, dim, start=last, stop=size),
            ],
            dim,
        )
    sources = np.arange(size)
    sources[index] = size + np.arange(len(index))
    both = emit.concat(g, [whole, part], dim)
    return Tensor(g.take(both.value, g.constant(sources), axis=both.axis(dim)), both.layout)


def _pieces(g: Builder, whole: Tensor, dim: int, start: int, stop: int) -> list[Tensor]:
    """Slice start:stop of a dimension, from its parts if the tensor is a concatenation.

    A loop that writes row by row thus ends in one concatenation, not one per row.
    """
    node = whole.value.node
    axis = whole.axis(dim)
    parts = [whole]
    if node is not None and node.op == "concat" and node.attrs["axis"] == axis:
        parts = [Tensor(value, whole.layout) for value in node.operands]
    pieces, at = [], 0
    for part in parts:
        size = part.shape[dim]
        low, high = max(start - at, 0), min(stop - at, size)
        if low < high:
            pieces.append(emit.slice_dim(g, part, dim, start=low, stop=high))
        at += size
    return pieces
