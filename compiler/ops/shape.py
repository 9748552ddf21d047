"""Ops that only move elements: reshape, transpose, broadcast, concat, pad, slice...

`pick` is `take` at compile-time indices: y[a, i, b] = x[a, index[i], b].
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import Shape
from pockengine.compiler.ops.elementwise import broadcast_shape, reduce_to
from pockengine.compiler.ops.registry import REQUIRED, Arrays, ChannelSet, Types, Vjp, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]


def _infer_reshape(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    if math.prod(attrs["shape"]) != x.size:
        raise GraphError(f"{x} cannot be reshaped to {attrs['shape']}: other number of elements")
    return (x.with_shape(attrs["shape"]),)


def _infer_transpose(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    if sorted(attrs["perm"]) != list(range(x.rank)):
        raise GraphError(f"perm {attrs['perm']} is no permutation of the dimensions of {x}")
    return (x.transposed(attrs["perm"]),)


def _infer_broadcast(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    if broadcast_shape(x.shape, attrs["shape"]) != attrs["shape"]:
        raise GraphError(f"{x} does not broadcast to {attrs['shape']}")
    return (x.with_shape(attrs["shape"]),)


def _infer_concat(types: Types, attrs: Attrs) -> Types:
    axis, first = attrs["axis"], types[0]
    if not 0 <= axis < first.rank:
        raise GraphError(f"concat: {first} has no axis {axis}")
    others = {(t.dtype, t.shape[:axis], t.shape[axis + 1 :]) for t in types}
    if len(others) != 1:
        raise GraphError(f"concat of {', '.join(map(str, types))} on axis {axis}: others differ")
    total = sum(type_.shape[axis] for type_ in types)
    return (first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _infer_pad(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    low, high = attrs["low"], attrs["high"]
    if len(low) != x.rank or len(high) != x.rank or min((*low, *high), default=0) < 0:
        raise GraphError(f"pad of {x} needs {x.rank} sizes >= 0 on each side, not {low}, {high}")
    sizes = zip(low, x.shape, high, strict=True)
    return (x.with_shape(tuple(before + size + after for before, size, after in sizes)),)


def _infer_slice(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    start, stop, step = attrs["start"], attrs["stop"], attrs["step"]
    if {len(start), len(stop), len(step)} != {x.rank}:
        raise GraphError(f"slice of {x} needs {x.rank} starts, stops and steps")
    for first, last, stride, size in zip(start, stop, step, x.shape, strict=True):
        if not 0 <= first < last <= size or stride < 1:
            raise GraphError(f"slice {first}:{last}:{stride} is empty or outside of {x}")
    spans = zip(start, stop, step, strict=True)
    return (x.with_shape(tuple(-(-(last - first) // n) for first, last, n in spans)),)


def _infer_pick(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    axis, index = attrs["axis"], attrs["index"]
    if not 0 <= axis < x.rank or not index or not 0 <= min(index) <= max(index) < x.shape[axis]:
        raise GraphError(f"pick of {index} on axis {axis} is empty or outside of {x}")
    return (x.with_shape((*x.shape[:axis], len(index), *x.shape[axis + 1 :])),)


def _eval_pad(arrays: Arrays, attrs: Attrs) -> Arrays:
    width = list(zip(attrs["low"], attrs["high"], strict=True))
    return (np.pad(arrays[0], width, constant_values=attrs["value"]),)


def _eval_slice(arrays: Arrays, attrs: Attrs) -> Arrays:
    spans = zip(attrs["start"], attrs["stop"], attrs["step"], strict=True)
    return (arrays[0][tuple(slice(*span) for span in spans)].copy(),)


def cut(g: "Builder", x: Value, start: Shape, stop: Shape) -> Value:
    """Slice with steps of one."""
    return g.slice(x, start=start, stop=stop, step=(1,) * len(start))


def slice_axis(g: "Builder", x: Value, axis: int, span: range) -> Value:
    """Slice one axis; x itself if the span is the whole axis."""
    if len(span) == x.shape[axis]:
        return x
    start, stop = [0] * len(x.shape), list(x.shape)
    start[axis], stop[axis] = span.start, span.stop
    return cut(g, x, tuple(start), tuple(stop))


def part_of_axis(g: "Builder", x: Value, axis: int, channels: ChannelSet) -> Value:
    """Slice or pick channels of one axis; x itself if all are selected."""
    if isinstance(channels, range):
        return slice_axis(g, x, axis, channels)
    return g.pick(x, axis=axis, index=tuple(channels))


def _reshape_dx(g: "Builder", node: Node, dy: Value) -> Value:
    return g.reshape(dy, shape=node.operands[0].shape)


def _transpose_dx(g: "Builder", node: Node, dy: Value) -> Value:
    return g.transpose(dy, perm=tuple(int(axis) for axis in np.argsort(node.attrs["perm"])))


def _broadcast_dx(g: "Builder", node: Node, dy: Value) -> Value:
    return reduce_to(g, dy, node.operands[0].shape)


def _pad_dx(g: "Builder", node: Node, dy: Value) -> Value:
    low, shape = node.attrs["low"], node.operands[0].shape
    stop = tuple(first + size for first, size in zip(low, shape, strict=True))
    return cut(g, dy, low, stop)


def _slice_dx(g: "Builder", node: Node, dy: Value) -> Value:
    x = node.operands[0].shape
    start, step = node.attrs["start"], node.attrs["step"]
    if any(stride != 1 for stride in step):
        dy = spread(g, dy, step)
    sizes = zip(x, start, dy.shape, strict=True)
    high = tuple(size - first - length for size, first, length in sizes)
    return g.pad(dy, low=start, high=high, value=0.0)


def spread(g: "Builder", dy: Value, step: Shape) -> Value:
    """Insert step - 1 zeros between the elements of each dimension."""
    split = tuple(size for length in dy.shape for size in (length, 1))
    zeros = tuple(size for stride in step for size in (0, stride - 1))
    padded = g.pad(g.reshape(dy, shape=split), low=(0,) * len(split), high=zeros, value=0.0)
    merged = tuple(length * stride for length, stride in zip(dy.shape, step, strict=True))
    whole = g.reshape(padded, shape=merged)
    stop = tuple((n - 1) * stride + 1 for n, stride in zip(dy.shape, step, strict=True))
    return cut(g, whole, (0,) * len(step), stop)


def _pick_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Zeros, and dy added at the indices."""
    index = g.constant(np.asarray(node.attrs["index"], np.int64), "index")
    shape = node.operands[0].shape
    return g.take_dx(dy, index, axis=node.attrs["axis"], input_shape=shape)


def concat_rule(index: int) -> Vjp:
    """Gradient of concat for one operand: that operand's part of dy."""

    def rule(g: "Builder", node: Node, dy: Value) -> Value:
        axis = node.attrs["axis"]
        first = sum(value.shape[axis] for value in node.operands[:index])
        span = range(first, first + node.operands[index].shape[axis])
        return slice_axis(g, dy, axis, span)

    return rule


define(
    "reshape",
    "x",
    stored=True,
    attrs={"shape": REQUIRED},
    infer=_infer_reshape,
    eval=lambda arrays, attrs: (arrays[0].reshape(attrs["shape"]),),
    vjp={"x": _reshape_dx},
    copies=True,
    rearranges=True,
    view=True,
    linear=(0,),
    shifts=(0,),
)
define(
    "transpose",
    "x",
    stored=True,
    attrs={"perm": REQUIRED},
    infer=_infer_transpose,
    eval=lambda arrays, attrs: (np.ascontiguousarray(arrays[0].transpose(attrs["perm"])),),
    vjp={"x": _transpose_dx},
    copies=True,
    rearranges=True,
    linear=(0,),
    shifts=(0,),
)
define(
    "broadcast_to",
    "x",
    stored=True,
    attrs={"shape": REQUIRED},
    infer=_infer_broadcast,
    eval=lambda arrays, attrs: (np.broadcast_to(arrays[0], attrs["shape"]).copy(),),
    vjp={"x": _broadcast_dx},
    copies=True,
    rearranges=True,
    linear=(0,),
    shifts=(0,),
)
define(
    "concat",
    "parts",
    stored=True,
    variadic=True,
    attrs={"axis": REQUIRED},
    infer=_infer_concat,
    eval=lambda arrays, attrs: (np.concatenate(arrays, axis=attrs["axis"]),),
    variadic_vjp=concat_rule,
    copies=True,
    linear=(0,),
)
define(
    "pad",
    "x",
    attrs={"low": REQUIRED, "high": REQUIRED, "value": 0.0},
    infer=_infer_pad,
    eval=_eval_pad,
    vjp={"x": _pad_dx},
    copies=True,
    linear=(0,),
)
define(
    "slice",
    "x",
    stored=True,
    attrs={"start": REQUIRED, "stop": REQUIRED, "step": REQUIRED},
    infer=_infer_slice,
    eval=_eval_slice,
    vjp={"x": _slice_dx},
    copies=True,
    slices=True,
    linear=(0,),
    shifts=(0,),
)
define(
    "pick",
    "x",
    stored=True,
    attrs={"axis": REQUIRED, "index": REQUIRED},
    infer=_infer_pick,
    eval=lambda arrays, attrs: (np.take(arrays[0], attrs["index"], axis=attrs["axis"]),),
    vjp={"x": _pick_dx},
    copies=True,
    slices=True,
    linear=(0,),
    shifts=(0,),
)
