"""Compute all rows instead of those that a mask selects, and leave the others out of sums."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from pockengine.errors import ImportModelError
from pockengine.frontends.torch.blocks import UNRECORDED
from pockengine.frontends.torch.nodes import arguments_of, name_of, source_line, written_by
from pockengine.frontends.torch.selected_checks import (
    COUNTED,
    CTC,
    LOSSES,
    SUMS,
    FamilyReader,
    is_place,
)

aten = torch.ops.aten

MEAN = 1
"""The argument of losses for the mean."""

Form = Callable[[Node], Node]


class Rewriter:
    """Rewrites the readers of one family in the order of the graph."""

    def __init__(self, graph: Graph, reader: FamilyReader, mask: Node, first: Node) -> None:
        """Insert before `first` the selected rows, the index of one of them, and their number."""
        self._graph = graph
        self._reader = reader
        self._here = first
        self._mode = mask.meta["val"].fake_mode
        self._shape = _shape(mask)
        self._size = math.prod(self._shape)
        self._places: dict[Node, int] = {}
        """The coordinate of the selected places that a node is, if it is one."""
        self._listed: set[Node] = set()
        """The places as `nonzero` lists them, a row for each."""
        whole = mask.meta["val"].dtype is torch.bool
        marked = mask if whole else self._call(aten.ne.Scalar, mask, 0)
        self._mask = self._call(aten.reshape.default, marked, [self._size])
        number = self._call(aten.to.dtype, self._mask, torch.float32)
        self._one = self._call(aten.argmax.default, number, 0, True)
        self._any = self._call(aten.any.default, self._mask)
        self._count = self._call(aten.sum.default, self._mask)
        self._forms: dict[str, Form] = {
            "index": self._pick,
            "index_select": self._pick,
            "gather": self._gather,
            "index_add": self._add,
            "scatter_add": self._add,
            "index_copy": self._copy,
            "index_put": self._put,
            CTC: self._spoken,
            **dict.fromkeys(("cross_entropy_loss", "nll_loss_nd", "nll_loss"), self._labels),
        }

    def rewrite(self, node: Node) -> None:
        """Rewrite one node; its readers read the new one."""
        self._here = node
        if name_of(node) == "sym_size":
            self._replace_size(node)
            return
        expected = self._expected(node)
        form = self._form(node)
        new = node if form is None else form(node)
        if form is None:
            self._settle(node)
        if expected is not None and expected != _shape(new):
            raise ImportModelError(
                f"{node.target} cannot be computed for all rows ({source_line(node)}): it gives "
                f"{list(_shape(new))} then, not {list(expected)}"
            )
        self._follow(node, new)
        if new is not node:
            if self._reader.rows[node] is None and not written_by(node):
                new.meta["val"] = node.meta["val"]  # whose memory views of it share
            self._reader.rows[new] = self._reader.rows[node]
            node.replace_all_uses_with(new)
            self._graph.erase_node(node)

    def _form(self, node: Node) -> Form | None:
        """Return how an operator is rewritten whose readers would see the other rows."""
        name = name_of(node)
        if node in self._reader.masks:
            return self._select if isinstance(node.meta["val"], torch.Tensor) else lambda same: same
        if name == "getitem" and node.args[0] in self._reader.masks:
            return lambda part: self._coordinate(int(part.args[1]))
        if name in LOSSES:
            return self._loss if arguments_of(node)["reduction"] else None
        if name in SUMS:
            return self._sum if self._sums_rows(node) else None
        return self._forms.get(name)

    def _call(self, target: Any, *args: Any) -> Node:
        with self._graph.inserting_before(self._here):
            node = self._graph.call_function(target, args)
        fields = ("stack_trace", "nn_module_stack", UNRECORDED)
        node.meta = {key: self._here.meta[key] for key in fields if key in self._here.meta}
        self._settle(node)
        return node

    def _settle(self, node: Node) -> None:
        """Recompute this node's example value."""
        if node.op == "call_function":
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda x: x.meta["val"])
            with self._mode, torch.no_grad():
                node.meta["val"] = node.target(*args, **kwargs)

    def _expected(self, node: Node) -> tuple[int, ...] | None:
        """Return the shape that a result has with all rows."""
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return None
        return tuple(size if isinstance(size, int) else self._size for size in value.shape)

    def _follow(self, node: Node, new: Node) -> None:
        """Keep in mind which coordinate of the places a node is."""
        name, source = name_of(node), node.args[0] if node.args else None
        if name == "getitem" and source in self._reader.masks:
            self._places[new] = int(node.args[1])
        elif source in self._listed and name == "select" and node.args[1] in (1, -1):
            self._places[new] = int(node.args[2])
        elif source in self._listed and name != "select" and _shape(new) == (self._size,):
            self._places[new] = 0
        if name == "nonzero" and node in self._reader.masks:
            self._listed.add(new)
        if node in self._reader.masks:
            self._reader.masks[new] = self._reader.masks[node]

    def _replace_size(self, node: Node) -> None:
        """Use the number of all rows in shapes, and of the selected rows in arithmetic."""
        for user in list(node.users):
            instead = self._count if name_of(user) in COUNTED else self._size
            user.args = torch.fx.map_arg(user.args, lambda x, new=instead: new if x is node else x)
        self._graph.erase_node(node)

    def _coordinate(self, axis: int) -> Node:
        """Return the coordinates of all places along a dimension, constants."""
        places = self._call(aten.arange.default, self._size)
        inner = math.prod(self._shape[axis + 1 :])
        lines = self._call(aten.floor_divide.default, places, inner)
        return self._call(aten.remainder.Scalar, lines, self._shape[axis])

    def _select(self, node: Node) -> Node:
        """Take all rows, or the places of all."""
        if name_of(node) == "nonzero":
            parts = [self._coordinate(axis) for axis in range(len(self._shape))]
            return self._call(aten.stack.default, parts, 1)
        x: Any = node.args[0]
        indices = node.args[1] if name_of(node) == "index" else [node.args[1]]
        at = next(i for i, index in enumerate(indices) if index is not None)
        shape = _shape(x)
        lines = (*shape[:at], self._size, *shape[at + len(self._shape) :])
        return self._filled(self._call(aten.reshape.default, x, list(lines)), at)

    def _pick(self, node: Node) -> Node:
        """Read at places."""
        self._settle(node)
        dim = self._reader.row(node)
        copied = self._call_like(node)
        assert dim is not None
        return self._filled(copied, dim)

    def _gather(self, node: Node) -> Node:
        """Read along a dimension; at the first place if no row is selected."""
        x, dim, index, *_ = arguments_of(node).values()
        if not is_place(self._reader, index):
            index = self._call(aten.mul.Tensor, index, self._any)
        return self._call(aten.gather.default, x, dim, index)

    def _call_like(self, node: Node) -> Node:
        """Call the operator of a node as it does."""
        return self._call(node.target, *node.args)

    def _filled(self, rows: Node, dim: int) -> Node:
        """Replace rows that are not selected by one selected row.

        Where none is, the first one stands there, or 0 among integers, which are places perhaps.
        """
        one = self._call(aten.index_select.default, rows, dim, self._one)
        one = self._call(aten.detach.default, one)
        value = rows.meta["val"]
        if not value.is_floating_point() and value.dtype is not torch.bool:
            one = self._call(aten.mul.Tensor, one, self._any)
        return self._call(aten.where.self, self._marks(value.dim(), dim), rows, one)

    def _marks(self, rank: int, dim: int) -> Node:
        """Return the mask along one of this many dimensions."""
        shape = [self._size if axis == dim else 1 for axis in range(rank)]
        return self._call(aten.reshape.default, self._mask, shape)

    def _masked(self, rows: Node, dim: int, other: float = 0) -> Node:
        """Replace rows that are not selected by a number."""
        value = rows.meta["val"]
        number = self._call(aten.full.default, [], other)
        number = self._call(aten.to.dtype, number, value.dtype)
        return self._call(aten.where.self, self._marks(value.dim(), dim), rows, number)

    def _sums_rows(self, node: Node) -> bool:
        row = self._reader.row(node.args[0])
        dims = arguments_of(node).get("dim")
        rank = node.args[0].meta["val"].dim()
        return row is not None and (not dims or row in [dim % rank for dim in dims])

    def _sum(self, node: Node) -> Node:
        """Sum the selected elements, and divide by their number."""
        x: Any = node.args[0]
        named = arguments_of(node)
        if named.get("dtype") is not None:
            x = self._call(aten.to.dtype, x, named["dtype"])
        row = self._reader.row(node.args[0])
        assert row is not None
        shape = _shape(x)
        dims = [dim % len(shape) for dim in named.get("dim") or range(len(shape))]
        keepdim = bool(named.get("keepdim"))
        total = self._call(aten.sum.dim_IntList, self._masked(x, row), dims, keepdim)
        if name_of(node) == "sum":
            return total
        return self._average(total, math.prod(shape[dim] for dim in dims if dim != row))

    def _average(self, total: Node, others: int) -> Node:
        number = self._call(aten.mul.Tensor, self._count, others)
        return self._call(aten.div.Tensor, total, number)

    def _loss(self, node: Node) -> Node:
        """Compute the loss of each element, and the sum or mean over the selected ones."""
        named = arguments_of(node)
        how, row = named["reduction"], self._reader.row(node.args[0])
        assert row is not None
        named["reduction"] = 0
        kwargs = {
            argument.name: value
            for argument, value in zip(node.target._schema.arguments, named.values(), strict=True)
        }
        with self._graph.inserting_before(node):
            each = self._graph.call_function(node.target, (), kwargs)
        places = [
            argument.name for argument in node.target._schema.arguments if not argument.kwarg_only
        ]
        each.args = tuple(kwargs[name] for name in places)
        each.kwargs = {name: value for name, value in kwargs.items() if name not in places}
        self._settle(each)
        shape = _shape(each)
        total = self._call(aten.sum.default, self._masked(each, row))
        return self._average(total, math.prod(shape) // shape[row]) if how == MEAN else total

    def _labels(self, node: Node) -> Node:
        """Mark the labels that are not selected as ignored."""
        ignored = arguments_of(node)["ignore_index"]
        target: Any = node.args[1]
        args = (node.args[0], self._masked(target, 0, ignored), *node.args[2:])
        return self._call(node.target, *args)

    def _spoken(self, node: Node) -> Node:
        """Split concatenated labels of all samples into rows of the maximum length."""
        x, labels, lengths, label_lengths, blank = node.args
        longest = self._size
        if self._shape[:-1] == _shape(x)[1:2] and self._counts(label_lengths):
            longest = self._shape[-1]
        number = self._call(aten.to.dtype, self._mask, torch.int64)
        last = self._call(aten.cumsum.default, number, 0)
        place = self._masked(self._call(aten.sub.Tensor, last, 1), 0, self._size)
        spare = self._call(aten.new_zeros.default, labels, [self._size + 1])
        together = self._call(aten.index_put.default, spare, [place], labels)
        ends = self._call(aten.cumsum.default, label_lengths, 0)
        starts = self._call(aten.sub.Tensor, ends, label_lengths)
        along = self._call(aten.arange.default, longest)
        at = self._call(aten.add.Tensor, self._call(aten.unsqueeze.default, starts, 1), along)
        at = self._call(aten.clamp.default, at, None, self._size)
        rows = self._call(aten.index.Tensor, together, [at])
        return self._call(node.target, x, rows, lengths, label_lengths, blank)

    def _counts(self, lengths: Any) -> bool:
        """Whether these are how many the mask selects of each row of its last dimension."""
        while name_of(lengths) in ("to", "reshape", "_to_copy"):
            lengths = lengths.args[0]
        last = len(self._shape) - 1
        return (
            name_of(lengths) == "sum"
            and self._reader.is_mask(lengths.args[0])
            and [dim % len(self._shape) for dim in arguments_of(lengths)["dim"] or []] == [last]
        )

    def _add(self, node: Node) -> Node:
        """Add nothing for rows that are not selected."""
        x, dim, index, source, *_ = node.args
        row = self._reader.row(source)
        assert isinstance(source, Node)
        assert row is not None
        new = self._call(node.target, x, dim, index, self._masked(source, row))
        new.kwargs = node.kwargs
        return new

    def _copy(self, node: Node) -> Node:
        """Write rows to places of a dimension."""
        x, dim, index, source = node.args
        rank = x.meta["val"].dim()
        order = [dim % rank, *(axis for axis in range(rank) if axis != dim % rank)]
        back = [order.index(axis) for axis in range(rank)]
        moved = self._call(aten.permute.default, x, order)
        rows = self._call(aten.permute.default, source, order)
        written = self._written(moved, [index], rows)
        return self._stored(node, self._call(aten.permute.default, written, back))

    def _put(self, node: Node) -> Node:
        """Write rows to places, or add them there."""
        named = arguments_of(node)
        x, indices, values = named["x"], named["indices"], named["values"]
        shape = _shape(x)
        masked = indices[0].meta["val"].dtype is torch.bool
        taken = len(self._shape) if masked else len(indices)
        whole = [self._size, *shape[taken:]]
        rows = self._call(aten.expand.default, values, whole)
        if named["accumulate"]:
            rows = self._masked(rows, 0)
            places = [self._coordinate(axis) for axis in range(taken)] if masked else indices
            new = self._call(aten.index_put.default, x, places, rows, True)
            return self._stored(node, new)
        places = list(range(taken)) if masked else [self._places.get(index) for index in indices]
        if places == list(range(len(self._shape))) and shape[: len(places)] == self._shape:
            lines = self._call(aten.reshape.default, rows, list(shape))
            shown = [*self._shape, *(1,) * (len(shape) - taken)]
            marks = self._call(aten.reshape.default, self._mask, shown)
            return self._stored(node, self._call(aten.where.self, marks, lines, x))
        return self._stored(node, self._written(x, indices, rows))

    def _written(self, x: Node, indices: Any, rows: Node) -> Node:
        """Write rows to x; those that are not selected go to a row after the last one."""
        size = _shape(x)[0]
        spare = self._call(aten.slice.Tensor, x, 0, 0, 1)
        longer = self._call(aten.cat.default, [x, spare], 0)
        first, *others = indices
        first_place = self._call(aten.remainder.Scalar, first, size)
        places = [self._masked(first_place, 0, size), *others]
        written = self._call(aten.index_put.default, longer, places, rows)
        return self._call(aten.slice.Tensor, written, 0, 0, size)

    def _stored(self, node: Node, value: Node) -> Node:
        """Return an operator's result; an in-place operator writes it to its tensor."""
        if not written_by(node):
            return value
        return self._call(aten.copy_.default, node.args[0], value)


def _shape(node: Any) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()
