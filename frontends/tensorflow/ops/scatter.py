"""TensorFlow operators that read or write at index vectors, and those that combine segments."""

from math import prod

import numpy as np

from pockengine.compiler.ir import F32, I64, Builder, Shape
from pockengine.frontends import emit
from pockengine.frontends.dtypes import known_dtype
from pockengine.frontends.emit import scatter as emit_scatter
from pockengine.frontends.emit.index import write_lines
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.ranges import fixed_number
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.tensorflow.ops.registry import TfContext, integers, tf_op


def _lines(g: Builder, index: Tensor, shape: Shape) -> tuple[Tensor, Shape]:
    """Merge index vectors (..., k) over the first k dimensions into flat indices; also return the
    remaining sizes.
    """
    depth = index.shape[-1]
    known = g.graph.constants.get(index.value)
    if known is not None:
        data = known.transpose(np.argsort(index.layout)).astype(np.int64)
        flat = data @ np.array([prod(shape[i + 1 : depth]) for i in range(depth)], np.int64)
        return plain(g.constant(flat.reshape(-1).astype(index.dtype.numpy))), shape[depth:]
    total: Tensor | None = None
    for dim in range(depth):
        part = emit.slice_dim(g, index, -1, start=dim, stop=dim + 1)
        before = None if total is None else emit.arithmetic(g, "mul", total, shape[dim])
        total = part if before is None else emit.elementwise(g, "add", before, part)
    assert total is not None  # an index vector has an element at least
    return reshape(g, total, (total.size,)), shape[depth:]


def _table(g: Builder, x: Tensor, tail: Shape) -> Tensor:
    """View x as rows that an index vector selects."""
    size = prod(tail)
    return reshape(g, x, (x.size // size, size))


@tf_op("GatherNd")
def gather_nd(ctx: TfContext, x: Tensor, index: Tensor) -> Tensor:
    """Read the elements or slices at index vectors."""
    g = ctx.g
    places, tail = _lines(g, index, x.shape)
    rows = g.take(framework_order(g, _table(g, x, tail)), framework_order(g, places), axis=0)
    return reshape(g, plain(rows), (*index.shape[:-1], *tail))


@tf_op("ScatterNd", static=(2,))
def scatter_nd(ctx: TfContext, index: Tensor, updates: Tensor, target: np.ndarray) -> Tensor:
    """Add up at places in zeros."""
    shape = tuple(integers(target))
    places, tail = _lines(ctx.g, index, shape)
    return _sums(ctx.g, _table(ctx.g, updates, tail), places, shape=shape, tail=tail)


def _sums(g: Builder, rows: Tensor, places: Tensor, shape: Shape, tail: Shape) -> Tensor:
    lines = (prod(shape) // prod(tail), prod(tail))
    values = framework_order(g, rows), framework_order(g, places)
    return reshape(g, plain(g.take_dx(*values, axis=0, input_shape=lines)), shape)


def _define_sum(name: str, op: str) -> None:
    @tf_op(name)
    def rule(ctx: TfContext, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
        places, tail = _lines(ctx.g, index, x.shape)
        total = _sums(ctx.g, _table(ctx.g, updates, tail), places, shape=x.shape, tail=tail)
        return emit.elementwise(ctx.g, op, x, total)


_define_sum("TensorScatterAdd", "add")
_define_sum("TensorScatterSub", "sub")


@tf_op("TensorScatterUpdate")
def scatter_update(ctx: TfContext, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    """Replace the elements or slices at index vectors; the last write wins."""
    g = ctx.g
    places, tail = _lines(g, index, x.shape)
    table, lines = _table(g, x, tail), _table(g, updates, tail)
    return reshape(
        g, write_lines(g, table, 0, index=places, lines=lines, accumulate=False), x.shape
    )


def _define_extreme(name: str, reduction: str) -> None:
    @tf_op(name)
    def rule(ctx: TfContext, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
        g = ctx.g
        places, tail = _lines(g, index, x.shape)
        y = _reduced(
            g,
            _table(g, x, tail),
            places,
            lines=_table(g, updates, tail),
            reduction=reduction,
            include_self=True,
        )
        return reshape(g, y, x.shape)


def _reduced(
    g: Builder, table: Tensor, places: Tensor, lines: Tensor, reduction: str, include_self: bool
) -> Tensor:
    wide = emit.broadcast(g, reshape(g, places, (places.size, 1)), lines.shape)
    return emit_scatter.scatter_reduce(
        g, table, 0, index=wide, src=lines, reduce=reduction, include_self=include_self
    )


_define_extreme("TensorScatterMax", "amax")
_define_extreme("TensorScatterMin", "amin")

SEGMENTS = {"Sum": ("sum", 0.0), "Prod": ("prod", 1.0), "Mean": ("mean", 0.0)} | {
    "Max": ("amax", float(np.finfo(np.float32).min)),
    "Min": ("amin", float(np.finfo(np.float32).max)),
}
"""The reduction of segments, and the value of an empty unsorted segment."""


def _segments(
    ctx: TfContext, x: Tensor, ids: Tensor, count: int, kind: str, empty: float
) -> Tensor:
    """Combine the slices of each of `count` segments; negative numbers are skipped."""
    g, tail = ctx.g, x.shape[ids.rank :]
    rows, places = _table(g, x, tail), reshape(g, ids, (ids.size,))
    shape = (count, prod(tail))
    if kind == "sum":
        y = _sums(g, rows, places, shape=shape, tail=(prod(tail),))
    else:
        if x.dtype is not F32:
            raise Unsupported(f"segments of {x.dtype.value} that are not added; cast to float32")
        start = emit.broadcast(g, emit.scalar(g, empty, F32), shape)
        y = _reduced(g, start, places, lines=rows, reduction=kind, include_self=False)
    return reshape(g, y, (count, *tail))


def _define_segments(name: str, kind: str, empty: float) -> None:
    @tf_op(f"UnsortedSegment{name}", static=(2,))
    def unsorted(ctx: TfContext, x: Tensor, ids: Tensor, count: np.ndarray) -> Tensor:
        return _segments(ctx, x, ids, count=int(count), kind=kind, empty=empty)

    @tf_op(f"Segment{name}")
    def ordered(ctx: TfContext, x: Tensor, ids: Tensor) -> Tensor:
        return _segments(
            ctx, x, ids, count=_count(ctx, ids), kind=kind, empty=1.0 if kind == "prod" else 0.0
        )

    @tf_op(f"Segment{name}V2", static=(2,))
    def counted(ctx: TfContext, x: Tensor, ids: Tensor, count: np.ndarray) -> Tensor:
        return _segments(ctx, x, ids, count=int(count), kind=kind, empty=empty)


for _name, (_kind, _empty) in SEGMENTS.items():
    _define_segments(_name, _kind, _empty)


def _count(ctx: TfContext, ids: Tensor) -> int:
    """Return the number of segments, from the last segment id."""
    known = ctx.g.graph.constants.get(ids.value)
    if known is None:
        raise Unsupported(
            "segments whose number depends on data; use tf.math.unsorted_segment_sum and its like, "
            "which take the number"
        )
    return int(known.max()) + 1


def _define_search(name: str, op: str) -> None:
    @tf_op(name)
    def rule(
        ctx: TfContext, ordered: Tensor, values: Tensor, *, out_type: type = np.int32
    ) -> Tensor:
        """Count the elements of each sorted line before each value."""
        g = ctx.g
        lines = reshape(g, ordered, (*ordered.shape[:-1], 1, ordered.shape[-1]))
        wide = reshape(g, values, (*values.shape, 1))
        before = emit.cast(g, emit.elementwise(g, op, lines, wide), F32)
        count = emit.reduce(g, "reduce_sum", before, [-1], keepdims=False)
        return emit.cast(g, count, known_dtype(out_type, f"places of {out_type}"))


_define_search("LowerBound", "lt")
_define_search("UpperBound", "le")


@tf_op("InTopKV2", "InTopK", static=(2,))
def in_top_k(ctx: TfContext, x: Tensor, targets: Tensor, k: np.ndarray) -> Tensor:
    """Whether fewer than k of a line are larger than the one that the target names."""
    g = ctx.g
    places = reshape(g, emit.cast(g, targets, I64), (*targets.shape, 1))
    own = plain(g.take_along(framework_order(g, x), framework_order(g, places), axis=x.rank - 1))
    larger = emit.cast(g, emit.elementwise(g, "gt", x, own), F32)
    ahead = emit.reduce(g, "reduce_sum", larger, [-1], keepdims=False)
    return emit.arithmetic(g, "lt", ahead, float(int(k)))


@tf_op("DenseBincount", static=(2,), either=(1,))
def dense_bincount(
    ctx: TfContext,
    x: Tensor,
    size: np.ndarray | Tensor,
    weights: np.ndarray,
    *,
    binary_output: bool = False,
) -> Tensor:
    """Count each integer below `size` in a line, or test whether it occurs."""
    if weights.size:
        raise Unsupported("weights of counted numbers; use tf.math.unsorted_segment_sum")
    g, count = ctx.g, _known_size(ctx, size)
    if x.size > emit.MOST_COUNTED:
        raise Unsupported(f"counting {x.size} numbers; {emit.MOST_COUNTED} are the most")
    rows = x.shape[0] if x.rank == 2 else 1
    lines = reshape(g, x, (rows, x.size // rows))
    least, most = (emit.arithmetic(g, op, lines, n) for op, n in (("ge", 0), ("lt", count)))
    counted = emit.cast(g, emit.arithmetic(g, "logical_and", least, most), F32)
    inside = emit.arithmetic(g, "minimum", emit.arithmetic(g, "maximum", lines, 0), count - 1)
    values = framework_order(g, counted), framework_order(g, emit.cast(g, inside, I64))
    y = plain(g.take_along_dx(*values, axis=1, input_shape=(rows, count)))
    if binary_output:
        y = emit.arithmetic(g, "minimum", y, 1.0)
    y = reshape(g, y, (count,) if x.rank < 2 else (rows, count))
    return emit.cast(g, y, known_dtype(weights.dtype, f"counts of {weights.dtype}"))


def _known_size(ctx: TfContext, size: np.ndarray | Tensor) -> int:
    """Read how many numbers are counted; a computed one is known where its range is one number."""
    known = int(size) if isinstance(size, np.ndarray) else fixed_number(ctx.g, size.value)
    if known is None:
        raise Unsupported(
            "a number of bins that depends on data; set minlength and maxlength to it, or clip the "
            "numbers to known bounds"
        )
    return known
