"""TFLite's operators on shapes and positions, which may contain the file's batch size."""

import math
from typing import Any

import numpy as np
from tensorflow.lite.python.schema_py_generated import TensorType

from pockengine.compiler.ir import BOOL, F32, I32, I64
from pockengine.frontends import bounds, emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.tensorflow.lite.activation import activated
from pockengine.frontends.tensorflow.lite.file import MOST_PARTS
from pockengine.frontends.tensorflow.lite.registry import LiteContext, in_graph, lite_op
from pockengine.frontends.tensorflow.ops import RULES, Known
from pockengine.frontends.tensorflow.ops.registry import integers

_KINDS = {"FLOAT16": F32, "FLOAT32": F32, "INT32": I32, "INT64": I64, "BOOL": BOOL}


@lite_op("SHAPE")
def shape(ctx: LiteContext, options: Any, x: Tensor) -> np.ndarray:
    """Return the sizes, all of which are known."""
    wide = options is not None and options.OutType() == TensorType.INT64
    return np.array(x.shape, np.int64 if wide else np.int32)


@lite_op("RANGE", static=(0, 1, 2))
def range_(ctx: LiteContext, options: Any, *ends: np.ndarray) -> np.ndarray:
    """Count from a start to a limit by a step."""
    bounds.check_bound(bounds.ranged, ends)
    return np.arange(*(end.item() for end in ends), dtype=ends[0].dtype)


@lite_op("BROADCAST_ARGS", static=(0, 1))
def broadcast_args(ctx: LiteContext, options: Any, *shapes: np.ndarray) -> np.ndarray:
    """Return the shape that two shapes broadcast to."""
    sizes = np.broadcast_shapes(*(tuple(integers(shape)) for shape in shapes))
    return np.array(sizes, shapes[0].dtype)


@lite_op("RESHAPE", static=(1,))
def reshape(ctx: LiteContext, options: Any, x: Tensor, target: np.ndarray | None = None) -> Tensor:
    """Reshape to the shape of an input or, in older files, of an option."""
    shape = target if target is not None else np.array(options.NewShapeAsNumpy())
    sizes = integers(shape)
    if ctx.rows != 1 and ctx.results[0][:1] == ctx.declared[0][:1]:
        sizes = [ctx.results[0][0] * ctx.rows, *ctx.results[0][1:]]
    elif ctx.rows != 1 and -1 not in sizes and math.prod(sizes) != x.size:
        raise ctx.fixed(x.shape)
    return RULES["Reshape"].apply(ctx, x, np.array(sizes))


@lite_op("BROADCAST_TO", static=(1,))
def broadcast_to(ctx: LiteContext, options: Any, x: Tensor, target: np.ndarray) -> Tensor:
    """Repeat dimensions of size 1."""
    sizes = integers(target)
    if x.rank == len(sizes) and x.shape[0] != 1:
        sizes = ctx.grown(0, sizes)
    return emit.broadcast(ctx.g, x, tuple(sizes))


@lite_op("SLICE", static=(2,), either=(1,))
def slice_(
    ctx: LiteContext, options: Any, x: Tensor, begin: np.ndarray | Tensor, sizes: np.ndarray
) -> Known:
    """Slice each dimension by start and size; the file's batch size becomes the current one.

    An empty slice, as before a loop's first step, is a compile-time value.
    """
    starts = integers(begin) if isinstance(begin, np.ndarray) else [0] * x.rank
    triples = zip(integers(sizes), x.shape, starts, strict=True)
    found = [whole - start if size == -1 else size for size, whole, start in triples]
    if 0 in found:
        return np.zeros(found, x.dtype.numpy)
    return RULES["Slice"].apply(ctx, x, begin, np.array(ctx.grown(0, integers(sizes))))


@lite_op("STRIDED_SLICE", static=(3,), either=(1, 2))
def strided_slice(
    ctx: LiteContext,
    options: Any,
    x: Tensor,
    begin: np.ndarray | Tensor,
    end: np.ndarray | Tensor,
    strides: np.ndarray,
) -> Tensor:
    """x[...] with slices, numbers, new axes and an ellipsis, by the bits of masks."""
    masks = {
        "begin_mask": options.BeginMask(),
        "end_mask": options.EndMask(),
        "ellipsis_mask": options.EllipsisMask(),
        "new_axis_mask": options.NewAxisMask(),
        "shrink_axis_mask": options.ShrinkAxisMask(),
    }
    moved = masks["ellipsis_mask"] | masks["new_axis_mask"] | masks["shrink_axis_mask"]
    if isinstance(end, np.ndarray) and not moved & 1:
        end = np.array(ctx.grown(0, integers(end)))
    return RULES["StridedSlice"].apply(ctx, x, begin, end, strides, **masks)


@lite_op("CAST")
def cast(ctx: LiteContext, options: Any, x: Tensor) -> Tensor:
    """Convert the elements."""
    (kind,) = ctx.kinds
    if kind not in _KINDS:
        raise Unsupported(f"a cast to {kind}")
    if kind == "BOOL" and x.dtype is not BOOL:
        return emit.arithmetic(ctx.g, "ne", x, 0)
    return emit.cast(ctx.g, x, _KINDS[kind])


@lite_op("GATHER")
def gather(ctx: LiteContext, options: Any, x: Tensor, index: Tensor) -> Tensor:
    """Gather x at indices of a dimension."""
    settings = {"batch_dims": options.BatchDims()}
    return RULES["GatherV2"].apply(ctx, x, index, np.array(options.Axis()), **settings)


@lite_op("EMBEDDING_LOOKUP")
def embedding_lookup(ctx: LiteContext, options: Any, index: Tensor, table: Tensor) -> Tensor:
    """Gather rows of a table."""
    return RULES["GatherV2"].apply(ctx, table, index, np.array(0))


@lite_op("CONCATENATION", either=range(MOST_PARTS))
def concatenation(ctx: LiteContext, options: Any, *parts: Known) -> Known:
    """Concatenate along an axis, without empty operands."""
    full = [
        in_graph(ctx.g, part) for part in parts if not isinstance(part, np.ndarray) or part.size
    ]
    if not full:
        return parts[0]
    y = emit.concat(ctx.g, full, options.Axis() % full[0].rank)
    return activated(ctx, y, options.FusedActivationFunction())


@lite_op("DYNAMIC_UPDATE_SLICE", static=(2,))
def dynamic_update_slice(
    ctx: LiteContext, options: Any, x: Tensor, update: Tensor, starts: np.ndarray
) -> Tensor:
    """Write an update into x; an out-of-range start is clamped."""
    pairs = zip(integers(starts), x.shape, update.shape, strict=True)
    places = [min(max(start, 0), size - own) for start, size, own in pairs]
    return _put(ctx, x, update, places=places, dim=0)


def _put(ctx: LiteContext, x: Tensor, update: Tensor, places: list[int], dim: int) -> Known:
    """Write an update into the dimensions from one on."""
    if x.shape[dim:] == update.shape[dim:]:
        return update
    low, size = places[dim], x.shape[dim]
    high = low + update.shape[dim]
    parts = [(0, low), (low, high), (high, size)]
    cut = [emit.slice_dim(ctx.g, x, dim, *part) for part in parts if part[0] < part[1]]
    cut[low > 0] = _put(ctx, cut[low > 0], update, places=places, dim=dim + 1)
    return emit.concat(ctx.g, cut, dim)
