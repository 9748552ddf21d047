"""Reading and adding at indices that are data: gather and scatter as JAX's indexing emits them.

An index outside of its dimension reads or adds at the nearer end: JAX's NaN fills and dropped
updates are for debugging, and no data may make a kernel touch foreign memory.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.ir import BOOL, F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit_nn import Unsupported
from pockengine.frontends.jax.primitives.registry import Context, primitive
from pockengine.frontends.jax.primitives.shape import merged
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape


@dataclass(frozen=True)
class _Places:
    """Where slices stand in x, which has the dimensions batch, picked, rest in `order`.

    Along `picked` one element is taken; `windows` are the slice's own dimensions in the result (or
    in the updates), the other ones those of the indices.
    """

    batch: tuple[int, ...]
    index_batch: tuple[int, ...]
    picked: tuple[int, ...]
    windows: tuple[int, ...]

    def order(self, rank: int) -> list[list[int]]:
        """Group the dimensions of x: batch, picked, rest."""
        rest = [dim for dim in range(rank) if dim not in (*self.batch, *self.picked)]
        return [list(self.batch), list(self.picked), rest]


def _places(
    x: Tensor, batch: Any, index_batch: Any, picked: Any, inserted: Any, windows: Any, sizes: Any
) -> _Places:
    """Check that the indices pick single elements along dimensions that then vanish."""
    rest = [dim for dim in range(x.rank) if dim not in (*batch, *picked)]
    partial = any(sizes[dim] != x.shape[dim] for dim in rest)
    kept = set(picked) - set(inserted)
    if partial or kept or set(inserted) - set(picked):
        raise Unsupported("indices that are starts of slices; use lax.dynamic_slice or jnp.take")
    return _Places(tuple(batch), tuple(index_batch), tuple(picked), tuple(windows))


def _flat_index(g: Builder, index: Tensor, x: Tensor, places: _Places) -> Tensor:
    """Turn index vectors (..., k), moved inside of x, into one number each."""
    last = index.rank - 1
    total: Tensor | None = None
    for position, dim in enumerate(places.picked):
        part = emit.squeeze(g, emit.slice_dim(g, index, last, position, position + 1), [last])
        if len(places.picked) > 1:  # the op itself moves a single one inside
            low = emit.arithmetic(g, "maximum", part, 0)
            part = emit.arithmetic(g, "minimum", low, x.shape[dim] - 1)
        if total is None:
            total = part
        else:
            total = emit.arithmetic(g, "add", emit.arithmetic(g, "mul", total, x.shape[dim]), part)
    assert total is not None  # JAX emits no gather without an index
    return total


def _along(g: Builder, index: Tensor, places: _Places, rest: int) -> tuple[Tensor, list[int]]:
    """Bring batched indices to (batch, places, 1), to be repeated over the rest of x."""
    free = [dim for dim in range(index.rank) if dim not in places.index_batch]
    flat = merged(g, index, places.index_batch, free)
    return reshape(g, flat, (*flat.shape, 1)), free


@primitive("gather")
def gather(
    ctx: Context,
    x: Tensor,
    index: Tensor,
    *,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    **_: Any,
) -> Tensor:
    """Read elements or whole slices of x at places that each index vector gives."""
    d = dimension_numbers
    places = _places(
        x,
        d.operand_batching_dims,
        d.start_indices_batching_dims,
        d.start_index_map,
        d.collapsed_slice_dims,
        d.offset_dims,
        slice_sizes,
    )
    g, groups = ctx.g, places.order(x.rank)
    single = not places.batch and all(x.shape[dim] == 1 for dim in places.picked)
    if single and x.size == math.prod(ctx.shape):
        return reshape(g, x, ctx.shape)  # there is one place only
    flat = _flat_index(g, index, x, places)
    sizes = [x.shape[dim] for dim in groups[2]]
    lines = merged(g, x, *groups)
    if not places.batch:
        rows = reshape(g, lines, lines.shape[1:])
        value = g.take(framework_order(g, rows), framework_order(g, flat), axis=0)
        shaped = reshape(g, plain(value), (*flat.shape, *sizes))
        return permute(shaped, _result_order(ctx, places, range(flat.rank)))
    places_, free = _along(g, flat, places, lines.shape[2])
    wide = emit.broadcast(g, places_, (*places_.shape[:2], lines.shape[2]))
    value = g.take_along(framework_order(g, lines), framework_order(g, wide), axis=1)
    leading = (*places.index_batch, *free)
    shape = (*(flat.shape[dim] for dim in leading), *sizes)
    return permute(reshape(g, plain(value), shape), _result_order(ctx, places, leading))


def _result_order(ctx: Context, places: _Places, leading: Sequence[int]) -> list[int]:
    """Return the permutation from (index dimensions as in `leading`, slice) to the result."""
    rank = len(ctx.shape)
    return _order(places, leading, rank)


def _order(places: _Places, leading: Sequence[int], rank: int) -> list[int]:
    where = list(leading)
    others = [dim for dim in range(rank) if dim not in places.windows]
    order = [0] * rank
    for number, dim in enumerate(others):
        order[dim] = where.index(number)
    for number, dim in enumerate(places.windows):
        order[dim] = len(where) + number
    return order


@primitive("scatter-add")
def scatter_add(
    ctx: Context, x: Tensor, index: Tensor, updates: Tensor, *, dimension_numbers: Any, **_: Any
) -> Tensor:
    """Add updates to x at places that each index vector gives."""
    total = _scattered(ctx.g, x, index, updates, dimension_numbers)
    data = ctx.g.graph.constants.get(x.value)
    node = x.value.node
    if node is not None and node.op == "broadcast_to":
        data = ctx.g.graph.constants.get(node.operands[0])
    if data is not None and not np.any(data):
        return total
    return emit.arithmetic(ctx.g, "add", x, total)


@primitive("scatter")
def scatter(
    ctx: Context,
    x: Tensor,
    index: Tensor,
    updates: Tensor,
    *,
    dimension_numbers: Any,
    unique_indices: bool,
    **_: Any,
) -> Tensor:
    """Replace elements of x at places, which must differ from each other."""
    if not (unique_indices or _differ(ctx.g, index)):
        raise Unsupported(
            "x.at[i].set(...) with indices that may repeat; say unique_indices=True, or use .add"
        )
    g, numbers = ctx.g, dimension_numbers
    ones = emit.broadcast(g, emit.scalar(g, 1.0, F32), updates.shape)
    hit = emit.arithmetic(g, "gt", _scattered(g, x, index, ones, numbers), 0.5)
    floats = emit.cast(g, updates, F32) if updates.dtype is BOOL else updates
    new = _scattered(g, x, index, floats, numbers)
    return emit.elementwise(g, "where", hit, emit.cast(g, new, x.dtype), x)


def _differ(g: Builder, index: Tensor) -> bool:
    """Whether no two index vectors are the same, as far as that is known."""
    count = index.size // index.shape[-1]
    data = g.graph.constants.get(index.value)
    return count == 1 or (
        data is not None and len(np.unique(data.reshape(count, -1), axis=0)) == count
    )


def _scattered(g: Builder, x: Tensor, index: Tensor, updates: Tensor, numbers: Any) -> Tensor:
    """Add updates at their places to zeros of x's shape."""
    d = numbers
    sizes = list(x.shape)
    for dim in (*d.inserted_window_dims, *d.operand_batching_dims):
        sizes[dim] = 1
    windows = iter(d.update_window_dims)
    for dim in range(x.rank):
        if dim not in (*d.inserted_window_dims, *d.operand_batching_dims):
            sizes[dim] = updates.shape[next(windows)]
    places = _places(
        x,
        d.operand_batching_dims,
        d.scatter_indices_batching_dims,
        d.scatter_dims_to_operand_dims,
        d.inserted_window_dims,
        d.update_window_dims,
        sizes,
    )
    batch, picked, rest = places.order(x.rank)
    flat = _flat_index(g, index, x, places)
    free = [dim for dim in range(flat.rank) if dim not in places.index_batch]
    leading = [*places.index_batch, *free]
    back = list(np.argsort(_order(places, leading, updates.rank)))
    moved = permute(updates, [int(dim) for dim in back])
    sums = _sums(g, flat, moved, places, [[x.shape[d] for d in p] for p in (batch, picked, rest)])
    whole = reshape(g, plain(sums), tuple(x.shape[dim] for dim in (*batch, *picked, *rest)))
    return permute(whole, [[*batch, *picked, *rest].index(dim) for dim in range(x.rank)])


def _sums(g: Builder, flat: Tensor, moved: Tensor, places: _Places, sizes: list[list[int]]) -> Any:
    """Add rows of (batch, places, rest) to zeros of (batch, picked, rest)."""
    batch, picked, rest = (int(np.prod(part)) for part in sizes)
    count = flat.size // batch
    rows = reshape(g, moved, (batch, count, rest))
    if not places.batch:
        index = framework_order(g, reshape(g, flat, (count,)))
        values = framework_order(g, reshape(g, rows, (count, rest)))
        return g.take_dx(values, index, axis=0, input_shape=(picked, rest))
    lines, _ = _along(g, flat, places, rest)
    wide = framework_order(g, emit.broadcast(g, lines, (batch, count, rest)))
    shape = (batch, picked, rest)
    return g.take_along_dx(framework_order(g, rows), wide, axis=1, input_shape=shape)
