"""Reductions over a set of axes."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import I64, Shape, TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]
AXES = {"axes": REQUIRED, "keepdims": False}


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """Shape after reducing sorted, non-negative, distinct `axes`."""
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < len(shape) for axis in axes):
        raise GraphError(f"axes {axes} must be sorted, distinct and inside of shape {shape}")
    if keepdims:
        return tuple(1 if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def _infer(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    return (x.with_shape(reduced_shape(x.shape, attrs["axes"], attrs["keepdims"])),)


def _infer_argmax(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    return (TensorType(I64, reduced_shape(x.shape, (attrs["axis"],), False)),)


def _expand(g: "Builder", node: Node, reduced: Value) -> Value:
    """Give back the reduced axes, with size 1, to a result of the reduction or its cotangent."""
    shape = reduced_shape(node.operands[0].shape, node.attrs["axes"], True)
    return reduced if reduced.shape == shape else g.reshape(reduced, shape=shape)


def _sum_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """y = sum x  =>  dx = dy, repeated."""
    return g.broadcast_to(_expand(g, node, dy), shape=node.operands[0].shape)


def _mean_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """y = sum x / n  =>  dx = dy / n, repeated."""
    shape = node.operands[0].shape
    count = math.prod(shape[axis] for axis in node.attrs["axes"])
    return _sum_dx(g, node, g.mul(dy, g.scalar(1 / count)))


def _max_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Share dy equally among the elements that equal the maximum, as PyTorch's amax does."""
    (x,) = node.operands
    hit = g.eq(x, _expand(g, node, node.result))
    ones = g.where(hit, g.scalar(1.0), g.scalar(0.0))
    count = g.reduce_sum(ones, axes=node.attrs["axes"], keepdims=True)
    return g.mul(ones, g.div(_expand(g, node, dy), count))


def _eval_sum(arrays: Arrays, attrs: Attrs) -> Arrays:
    (x,) = arrays
    total = np.sum(x, axis=attrs["axes"], keepdims=attrs["keepdims"], dtype=_wide(x))
    return (np.asarray(total, dtype=x.dtype),)


def _eval_mean(arrays: Arrays, attrs: Attrs) -> Arrays:
    (x,) = arrays
    mean = np.mean(x, axis=attrs["axes"], keepdims=attrs["keepdims"], dtype=_wide(x))
    return (np.asarray(mean, dtype=x.dtype),)


def _eval_max(arrays: Arrays, attrs: Attrs) -> Arrays:
    (x,) = arrays
    return (np.asarray(np.max(x, axis=attrs["axes"], keepdims=attrs["keepdims"])),)


def _wide(x: np.ndarray) -> Any:
    """Accumulate floats in double: an oracle should be better than what it judges."""
    return np.float64 if x.dtype.kind == "f" else x.dtype


define("reduce_sum", "x", attrs=AXES, infer=_infer, eval=_eval_sum, vjp={"x": _sum_dx})
define("reduce_mean", "x", attrs=AXES, infer=_infer, eval=_eval_mean, vjp={"x": _mean_dx})
define("reduce_max", "x", attrs=AXES, infer=_infer, eval=_eval_max, vjp={"x": _max_dx})
define(
    "argmax",
    "x",
    attrs={"axis": REQUIRED},
    infer=_infer_argmax,
    eval=lambda arrays, attrs: (np.asarray(np.argmax(arrays[0], axis=attrs["axis"])),),
)
