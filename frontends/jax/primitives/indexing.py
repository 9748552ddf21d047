"""Gather and scatter at run-time indices, as JAX's indexing emits them.

Indices out of bounds behave as in XLA on a CPU: reads are filled, or moved to the
nearer end (without a gradient unless the mode is "clip"); writes are dropped, or moved.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode as Mode

from pockengine.compiler.ir import BOOL, F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.index import last_writers
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.jax.primitives.registry import JaxContext, primitive
from pockengine.frontends.jax.primitives.windows import (
    FlatIndex,
    IndexWindows,
    as_rows,
    find_places,
    gather_windows,
    grouped,
    in_result_order,
    known,
    scatter_windows,
    ungrouped,
)
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape

MOST_CANDIDATES = 1 << 20
"""For extremes each place looks at each update: this many pairs in all."""

REDUCING = {
    "scatter-max": ("reduce_max", -np.inf),
    "scatter-min": ("reduce_min", np.inf),
    "scatter-mul": ("reduce_prod", 1.0),
}
"""The reduction of updates to one position, and its neutral element."""

MOST_IN_TURN = 256
"""Updates that are applied in sequence."""

COMBINING = {"scatter-max": "maximum", "scatter-min": "minimum", "scatter-mul": "mul"}


def _check_mode(mode: Any) -> None:
    if mode not in (Mode.CLIP, Mode.FILL_OR_DROP, Mode.PROMISE_IN_BOUNDS):
        raise Unsupported(f"indices of mode {mode}; use 'clip', 'fill' or 'promise_in_bounds'")


@primitive("gather")
def gather(
    ctx: JaxContext,
    x: Tensor,
    index: Tensor,
    *,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    mode: Any,
    fill_value: Any,
    **_: Any,
) -> Tensor:
    """Read elements or slices of x at the places given by index vectors."""
    _check_mode(mode)
    g, windows = ctx.g, gather_windows(x, dimension_numbers, slice_sizes)
    single = all(x.shape[dim] == 1 for dim in windows.picked)
    if single and not windows.batch and x.size == math.prod(ctx.shape):
        places = find_places(g, index, windows, clamp=True)
        y = reshape(g, x, ctx.shape)  # there is one place only
    else:
        if mode == Mode.CLIP and windows.is_line:
            index = _clipped(g, index, windows)
        places = find_places(g, index, windows, clamp=True)
        rows = _taken(g, grouped(g, x, windows), places, windows)
        y = in_result_order(g, rows, places, windows=windows, index=index, rank=len(ctx.shape))
    if places.inside is None or mode == Mode.CLIP:
        return y
    labels = windows.result_labels(len(ctx.shape))
    sizes = zip(labels, ctx.shape, strict=True)
    line = tuple(size if kind == "index" else 1 for (kind, _), size in sizes)
    inside = reshape(g, places.inside, line)
    if mode == Mode.FILL_OR_DROP:
        return _filled(ctx, inside, y, fill_value)
    if ctx.forward and y.dtype is F32 and not windows.is_line and emit.trains(g, x):
        return emit.elementwise(g, "where", inside, y, emit.unary("stop_gradient")(g, y))
    return y


def _clipped(g: Builder, index: Tensor, windows: IndexWindows) -> Tensor:
    """Clamp single indices into range; the gradient goes to the clamped places too."""
    most = windows.shape[windows.picked[0]] - 1
    data = known(g, index)
    if data is not None:
        return plain(g.constant(np.clip(data, 0, most)))
    return emit.arithmetic(g, "minimum", emit.arithmetic(g, "maximum", index, 0), most)


def _filled(ctx: JaxContext, inside: Tensor, y: Tensor, value: Any) -> Tensor:
    """Write the value where y was read out of range."""
    if y.dtype is BOOL:
        outside = emit.unary("logical_not")(ctx.g, inside)
        wide = emit.broadcast(ctx.g, outside, y.shape)
        if value is None or value:
            return emit.elementwise(ctx.g, "logical_or", y, wide)
        return emit.elementwise(ctx.g, "logical_and", y, emit.unary("logical_not")(ctx.g, wide))
    if value is None:
        value = np.nan if y.dtype is F32 else _extreme_of(ctx.dtypes[0])
    number = emit.scalar(ctx.g, np.asarray(value).item(), y.dtype)
    return emit.elementwise(ctx.g, "where", inside, y, number)


def _extreme_of(dtype: np.dtype[Any]) -> int:
    """Return JAX's fill value: the least integer, or the greatest of a type without a sign."""
    limits = np.iinfo(dtype)
    return int(limits.min or limits.max)


def _taken(g: Builder, lines: Tensor, places: FlatIndex, windows: IndexWindows) -> Tensor:
    """Read rows of (batch, picked, rest) at (batch, count): (batch, count, rest)."""
    width, count = lines.shape[2], places.flat.shape[1]
    if not windows.batch:
        rows = reshape(g, lines, lines.shape[1:])
        flat = reshape(g, places.flat, (count,))
        value = g.take(framework_order(g, rows), framework_order(g, flat), axis=0)
        return reshape(g, plain(value), (1, count, width))
    wide = _wide(g, places.flat, width)
    return plain(g.take_along(framework_order(g, lines), framework_order(g, wide), axis=1))


def _wide(g: Builder, flat: Tensor, width: int) -> Tensor:
    """Repeat indices of (batch, count) over what each of them reads."""
    return emit.broadcast(g, reshape(g, flat, (*flat.shape, 1)), (*flat.shape, width))


def _added(g: Builder, rows: Tensor, places: FlatIndex, windows: IndexWindows) -> Tensor:
    """Add rows of (batch, count, rest) to zeros of x's shape; rows outside are dropped."""
    batch, count, width = rows.shape
    picked = math.prod(windows.shape[dim] for dim in windows.picked)
    if not windows.batch:
        flat = framework_order(g, reshape(g, places.flat, (count,)))
        values = framework_order(g, reshape(g, rows, (count, width)))
        sums = g.take_dx(values, flat, axis=0, input_shape=(picked, width))
    else:
        wide = framework_order(g, _wide(g, places.flat, width))
        shape = (batch, picked, width)
        sums = g.take_along_dx(framework_order(g, rows), wide, axis=1, input_shape=shape)
    return ungrouped(g, reshape(g, plain(sums), (batch, picked, width)), windows)


def _written(
    g: Builder, x: Tensor, index: Tensor, updates: Tensor, numbers: Any, mode: Any
) -> tuple[IndexWindows, FlatIndex]:
    """Return the target of each update; visibly broken promises are refused."""
    _check_mode(mode)
    windows = scatter_windows(x, updates, numbers)
    if mode == Mode.PROMISE_IN_BOUNDS and _may_leave(g, index, windows, known_only=True):
        raise Unsupported(
            "writes outside of the array under mode='promise_in_bounds', where JAX promises "
            "nothing; say mode='drop' or mode='clip'"
        )
    clamp = mode == Mode.CLIP
    if clamp and windows.is_line:
        index = _clipped(g, index, windows)
    return windows, find_places(g, index, windows, clamp=clamp)


def _may_leave(
    g: Builder, index: Tensor, windows: IndexWindows, *, known_only: bool = False
) -> bool:
    """Return whether an index is out of bounds or, unless `known_only`, not constant."""
    if known(g, index) is None:
        return not known_only
    return find_places(g, index, windows, clamp=False).inside is not None


def _scatter_sum(
    ctx: JaxContext,
    x: Tensor,
    index: Tensor,
    updates: Tensor,
    *,
    dimension_numbers: Any,
    mode: Any,
    op: str,
    **_: Any,
) -> Tensor:
    """Add updates to x, or subtract them, at the places given by index vectors."""
    g = ctx.g
    if x.dtype is BOOL:
        raise Unsupported("sums of booleans; cast them to int32")
    windows, places = _written(g, x, index, updates=updates, numbers=dimension_numbers, mode=mode)
    total = _added(g, as_rows(g, updates, windows, index), places, windows)
    start = known(g, x)
    if op == "add" and start is not None and not np.any(start):
        return total
    return emit.arithmetic(g, op, x, total)


@primitive("scatter")
def scatter(
    ctx: JaxContext,
    x: Tensor,
    index: Tensor,
    updates: Tensor,
    *,
    dimension_numbers: Any,
    mode: Any,
    unique_indices: bool,
    **_: Any,
) -> Tensor:
    """Replace elements of x at places; if several write to one, the last wins."""
    windows, places = _written(
        ctx.g, x, index, updates=updates, numbers=dimension_numbers, mode=mode
    )
    number = _repeated(updates)
    if number is not None:
        hit = _hits(ctx.g, places, windows)
        return emit.elementwise(ctx.g, "where", hit, number, x)
    promised = unique_indices and _promised(ctx.g, places)
    last = None if promised else last_writers(ctx.g, places.flat)
    return _replaced(
        ctx.g, x, as_rows(ctx.g, updates, windows, index), places=places, windows=windows, last=last
    )


def applied(
    ctx: JaxContext, x: Tensor, index: Tensor, updates: Tensor, params: Mapping[str, Any]
) -> Tensor:
    """Return which elements of x a function is applied to."""
    g, numbers = ctx.g, params["dimension_numbers"]
    windows, places = _written(g, x, index, updates=updates, numbers=numbers, mode=params["mode"])
    promised = params["unique_indices"] and _promised(g, places)
    if not promised and last_writers(g, places.flat, known_only=True) is not None:
        raise Unsupported(
            "a function applied at indices that may repeat; say unique_indices=True, or give "
            "constant indices that are all different"
        )
    return _hits(g, places, windows)


def _promised(g: Builder, places: FlatIndex) -> bool:
    """Trust that indices are unique, as JAX does; refuse constant ones that repeat."""
    data = known(g, places.flat)
    for line in () if data is None else data:
        written = line[line >= 0]
        if np.unique(written).size < written.size:
            raise Unsupported(
                "indices that repeat under unique_indices=True, where JAX promises nothing; say "
                "unique_indices=False"
            )
    return True


def _repeated(updates: Tensor) -> Tensor | None:
    """Return the number that all updates are."""
    node = updates.value.node
    if node is None or node.op != "broadcast_to" or node.operands[0].type.size != 1:
        return None
    value = node.operands[0]
    return Tensor(value, ()) if not value.shape else None


def _hits(g: Builder, places: FlatIndex, windows: IndexWindows) -> Tensor:
    """Return which elements of x are written."""
    width = math.prod(windows.shape[dim] for dim in windows.whole_dims)
    ones = emit.broadcast(g, emit.scalar(g, 1.0, F32), (*places.flat.shape, width))
    return emit.arithmetic(g, "gt", _added(g, ones, places, windows), 0.5)


def _replaced(
    g: Builder,
    x: Tensor,
    rows: Tensor,
    places: FlatIndex,
    windows: IndexWindows,
    last: Tensor | None,
) -> Tensor:
    """Write rows to x; only the last one at each place counts."""
    floats = emit.cast(g, rows, F32) if rows.dtype is BOOL else rows
    if last is not None:
        written = reshape(g, last, (*last.shape, 1))
        floats = emit.elementwise(g, "where", written, floats, emit.scalar(g, 0, floats.dtype))
    new = _added(g, floats, places, windows)
    hit = _hits(g, places, windows)
    if x.dtype is BOOL:
        changed = emit.elementwise(g, "logical_and", hit, _nonzero(g, new))
        written = emit.elementwise(g, "logical_and", x, emit.unary("logical_not")(g, hit))
        return emit.elementwise(g, "logical_or", changed, written)
    return emit.elementwise(g, "where", hit, new, x)


def _nonzero(g: Builder, x: Tensor) -> Tensor:
    return emit.arithmetic(g, "gt", x, 0.5)


def _combining(name: str) -> Callable[..., Tensor]:
    """Return the rule that combines updates with elements of x at indexed places."""

    def rule(
        ctx: JaxContext,
        x: Tensor,
        index: Tensor,
        updates: Tensor,
        *,
        dimension_numbers: Any,
        mode: Any,
        unique_indices: bool,
        **_: Any,
    ) -> Tensor:
        g = ctx.g
        windows, places = _written(
            g, x, index, updates=updates, numbers=dimension_numbers, mode=mode
        )
        trained = ctx.forward and (emit.trains(g, x) or emit.trains(g, updates))
        clipped = mode == Mode.CLIP and name != "scatter-mul"
        if clipped and trained and _may_leave(g, index, windows):
            raise Unsupported(
                f"the gradient of {name} in mode 'clip', which JAX itself divides by 0 for an "
                "index outside; move the indices before: x.at[jnp.clip(i, 0, len(x) - 1)]"
            )
        rows, lines = as_rows(g, updates, windows, index), grouped(g, x, windows)
        promised = unique_indices and _promised(g, places)
        if promised or last_writers(g, places.flat, known_only=True) is None:
            new = emit.elementwise(g, COMBINING[name], _taken(g, lines, places, windows), rows)
            return _replaced(g, x, new, places=places, windows=windows, last=None)
        if x.dtype is F32:
            combined = _reduced(g, lines, rows, flat=places.flat, how=REDUCING[name])
        else:
            combined = _in_turn(g, lines, rows, flat=places.flat, op=COMBINING[name])
        return ungrouped(g, combined, windows)

    return rule


def _in_turn(g: Builder, lines: Tensor, rows: Tensor, flat: Tensor, op: str) -> Tensor:
    """Combine (batch, picked, rest) with one update after the other."""
    batch, picked, _ = lines.shape
    if flat.shape[1] > MOST_IN_TURN:
        raise Unsupported(
            f"{flat.shape[1]} whole numbers combined at indices that may repeat; {MOST_IN_TURN} "
            "are the most, unless unique_indices=True"
        )
    counting = plain(g.constant(np.arange(picked, dtype=flat.dtype.numpy).reshape(1, picked, 1)))
    for update in range(flat.shape[1]):
        place = reshape(g, emit.slice_dim(g, flat, 1, start=update, stop=update + 1), (batch, 1, 1))
        here = emit.elementwise(g, "eq", counting, place)
        row = emit.slice_dim(g, rows, 1, start=update, stop=update + 1)
        new = emit.elementwise(g, op, lines, emit.broadcast(g, row, lines.shape))
        wide = emit.broadcast(g, here, lines.shape)
        lines = emit.elementwise(g, "where", wide, new, lines)
    return lines


def _reduced(
    g: Builder, lines: Tensor, rows: Tensor, flat: Tensor, how: tuple[str, float]
) -> Tensor:
    """Reduce, at each position, its element and all updates of it."""
    (batch, picked, width), count, (op, nothing) = lines.shape, flat.shape[1], how
    if batch * picked * count * width > MOST_CANDIDATES:
        raise Unsupported(
            f"{op} of {count} updates at {picked} places of {width} numbers; {MOST_CANDIDATES} "
            "pairs are the most, unless unique_indices=True"
        )
    counting = plain(g.constant(np.arange(picked, dtype=flat.dtype.numpy).reshape(1, picked, 1)))
    here = emit.elementwise(g, "eq", reshape(g, flat, (batch, 1, count)), counting)
    wide = emit.broadcast(
        g, reshape(g, rows, (batch, 1, count, width)), (batch, picked, count, width)
    )
    mask = emit.broadcast(g, reshape(g, here, (batch, picked, count, 1)), wide.shape)
    candidates = emit.elementwise(g, "where", mask, wide, emit.scalar(g, nothing, F32))
    own = reshape(g, lines, (batch, picked, 1, width))
    combined = emit.reduce(g, op, emit.concat(g, [own, candidates], 2), [2], keepdims=False)
    # What is not written has no ties, though it be as infinite as the candidates left out.
    hit = emit.reduce(g, "reduce_max", emit.cast(g, here, F32), [2], keepdims=True)
    return emit.elementwise(g, "where", emit.arithmetic(g, "gt", hit, 0.5), combined, lines)


def _define_scatters() -> None:
    for name, op in (("scatter-add", "add"), ("scatter-sub", "sub")):
        primitive(name)(partial(_scatter_sum, op=op))
    for name in COMBINING:
        primitive(name)(_combining(name))


_define_scatters()
