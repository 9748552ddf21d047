"""ONNX operators that reduce or scan along dimensions, and softmax."""

import math
from collections.abc import Callable

import numpy as np

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.cumulative import associative_scan
from pockengine.frontends.emit.cumulative import cumsum as emit_cumsum
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.onnx.ops.registry import OnnxContext, dims_of, onnx_op

Step = Callable[[Builder, Tensor], Tensor]


def _same(g: Builder, x: Tensor) -> Tensor:
    return x


# ONNX operator -> the op before, our reduction, the op after
REDUCTIONS: dict[str, tuple[Step, str, Step]] = {
    "ReduceL1": (emit.unary("abs"), "reduce_sum", _same),
    "ReduceL2": (emit.unary("square"), "reduce_sum", emit.unary("sqrt")),
    "ReduceLogSum": (_same, "reduce_sum", emit.unary("log")),
    "ReduceMax": (_same, "reduce_max", _same),
    "ReduceMean": (_same, "reduce_mean", _same),
    "ReduceMin": (_same, "reduce_min", _same),
    "ReduceProd": (_same, "reduce_prod", _same),
    "ReduceSum": (_same, "reduce_sum", _same),
    "ReduceSumSquare": (emit.unary("square"), "reduce_sum", _same),
}


def _define(name: str, before: Step, op: str, after: Step) -> None:
    @onnx_op(name, static=(1,))
    def rule(
        ctx: OnnxContext,
        x: Tensor,
        reduced: np.ndarray | None = None,
        *,
        axes: list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Tensor:
        dims = dims_of(x.rank, reduced, axes) or []
        x = before(ctx.g, x)
        if dims or not noop_with_empty_axes:
            x = emit.reduce(ctx.g, op, x, dims=dims, keepdims=bool(keepdims))
        return after(ctx.g, x)


for _name, _steps in REDUCTIONS.items():
    _define(_name, *_steps)


@onnx_op("ReduceLogSumExp", static=(1,))
def reduce_log_sum_exp(
    ctx: OnnxContext,
    x: Tensor,
    reduced: np.ndarray | None = None,
    *,
    axes: list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Tensor:
    """log(sum(exp(x)))."""
    dims = dims_of(x.rank, reduced, axes) or []
    if noop_with_empty_axes and not dims:
        return x
    return emit.log_sum_exp(ctx.g, x, dims or range(x.rank), keepdims=bool(keepdims))


def _define_place(name: str, before: Step) -> None:
    @onnx_op(name)
    def rule(
        ctx: OnnxContext, x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Tensor:
        dim = axis % x.rank
        values = framework_order(ctx.g, before(ctx.g, x))
        if select_last_index:  # the last one
            values = ctx.g.reverse(values, axes=(dim,))
        places = plain(ctx.g.argmax(values, axis=dim))
        if select_last_index:
            places = emit.arithmetic(ctx.g, "sub", x.shape[axis] - 1, places)
        shape = list(x.shape)
        shape[axis] = 1
        return reshape(ctx.g, places, tuple(shape)) if keepdims else places


_define_place("ArgMax", _same)
_define_place("ArgMin", emit.unary("neg"))


@onnx_op("CumSum", static=(1,))
def cumsum(
    ctx: OnnxContext, x: Tensor, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0
) -> Tensor:
    """Sum up to each element along a dimension."""
    dim = int(np.ravel(axis)[0])
    return emit_cumsum(ctx.g, x, dim, exclusive=bool(exclusive), reverse=bool(reverse))


@onnx_op("CumProd", static=(1,))
def cumprod(
    ctx: OnnxContext, x: Tensor, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0
) -> Tensor:
    """Multiply up to each element along a dimension, from the end on request."""
    g, dim = ctx.g, int(np.ravel(axis)[0]) % x.rank
    if reverse:
        x = _flipped(g, x, dim)
    y = associative_scan(g, x, dim, lambda g, a, b: emit.elementwise(g, "mul", a, b))
    if exclusive:
        low = tuple(int(axis == dim) for axis in range(x.rank))
        y = emit.pad(g, y, low, tuple(-size for size in low), value=1.0)
    return _flipped(g, y, dim) if reverse else y


def _flipped(g: Builder, x: Tensor, dim: int) -> Tensor:
    order = g.constant(np.arange(x.shape[dim])[::-1].copy())
    return plain(g.take(framework_order(g, x), order, axis=dim))


@onnx_op("LpNormalization")
def lp_normalization(ctx: OnnxContext, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Divide each line of a dimension by its norm; a line of zeros is unchanged."""
    if p not in (1, 2):
        raise Unsupported(f"the norm of order {p}; use 1 or 2")
    g = ctx.g
    before, op, after = REDUCTIONS[f"ReduceL{p}"]
    total = emit.reduce(g, op, before(g, x), [axis], keepdims=True)
    some = emit.arithmetic(g, "gt", total, 0.0)
    return emit.arithmetic(g, "div", x, after(g, emit.choose(g, some, total, 1.0)))


def _define_softmax(name: str, op: str) -> None:
    @onnx_op(name)
    def rule(ctx: OnnxContext, x: Tensor, *, axis: int | None = None) -> Tensor:
        if ctx.opset >= 13:
            return emit.along_last(ctx.g, op, x, -1 if axis is None else axis)
        # Before opset 13 the dimensions from `axis` on count as one.
        first = (1 if axis is None else axis) % x.rank
        matrix = (math.prod(x.shape[:first]), math.prod(x.shape[first:]))
        y = emit.along_last(ctx.g, op, reshape(ctx.g, x, matrix), -1)
        return reshape(ctx.g, y, x.shape)


_define_softmax("Softmax", "softmax")
_define_softmax("LogSoftmax", "log_softmax")


@onnx_op("GlobalAveragePool")
def global_average_pool(ctx: OnnxContext, x: Tensor) -> Tensor:
    """Average each channel of (N, C, ...)."""
    return emit.reduce(ctx.g, "reduce_mean", x, range(2, x.rank), keepdims=True)


@onnx_op("GlobalMaxPool")
def global_max_pool(ctx: OnnxContext, x: Tensor) -> Tensor:
    """Take the maximum of each channel of (N, C, ...)."""
    return emit.reduce(ctx.g, "reduce_max", x, range(2, x.rank), keepdims=True)


@onnx_op("GlobalLpPool")
def global_lp_pool(ctx: OnnxContext, x: Tensor, *, p: int = 2) -> Tensor:
    """Return the p-norm of each channel."""
    powers = emit.arithmetic(ctx.g, "pow", emit.unary("abs")(ctx.g, x), float(p))
    total = emit.reduce(ctx.g, "reduce_sum", powers, dims=list(range(2, x.rank)), keepdims=True)
    return emit.arithmetic(ctx.g, "pow", total, 1 / p)


@onnx_op("Hardmax")
def hardmax(ctx: OnnxContext, x: Tensor, *, axis: int | None = None) -> Tensor:
    """1 at the first maximum along a dimension, else 0."""
    axis = (1 if ctx.opset < 13 else -1) if axis is None else axis
    if ctx.opset < 13 and axis % x.rank != x.rank - 1:  # all dimensions from there on are one
        first = math.prod(x.shape[: axis % x.rank])
        matrix = reshape(ctx.g, x, (first, math.prod(x.shape) // first))
        return reshape(ctx.g, _first_most(ctx, matrix, -1), x.shape)
    return _first_most(ctx, x, axis)


def _first_most(ctx: OnnxContext, x: Tensor, axis: int) -> Tensor:
    values = framework_order(ctx.g, x)
    places = plain(ctx.g.argmax(values, axis=axis % x.rank))
    shape = list(x.shape)
    shape[axis] = 1
    line = [1] * x.rank
    line[axis] = x.shape[axis]
    count = np.arange(x.shape[axis]).reshape(line).astype(places.dtype.numpy)
    at = emit.elementwise(
        ctx.g, "eq", reshape(ctx.g, places, tuple(shape)), plain(ctx.g.constant(count))
    )
    return emit.cast(ctx.g, at, F32)
