"""Reductions over a set of axes."""

import math
from collections.abc import Callable, Mapping
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
    """Restore the reduced axes, with size 1, in a result or its cotangent."""
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


def _extreme_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Split dy equally among the elements that equal the extreme, as PyTorch's amax does."""
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


def _prod_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Give each element dy times the product of the others.

    Without zeros that is y / x. With one zero only that element has a gradient: the product of the
    others. With more zeros all gradients are 0.
    """
    (x,) = node.operands
    axes = node.attrs["axes"]
    zero = g.eq(x, g.scalar(0.0))
    filled = g.where(zero, g.scalar(1.0), x)
    others = g.reduce_prod(filled, axes=axes, keepdims=True)
    zeros = g.reduce_sum(g.where(zero, g.scalar(1.0), g.scalar(0.0)), axes=axes, keepdims=True)
    left = g.sub(zeros, g.where(zero, g.scalar(1.0), g.scalar(0.0)))
    product = g.where(g.eq(left, g.scalar(0.0)), g.div(others, filled), g.scalar(0.0))
    return g.mul(_expand(g, node, dy), product)


def _eval_extreme(pick: Callable[..., Any]) -> Callable[[Arrays, Attrs], Arrays]:
    def evaluate(arrays: Arrays, attrs: Attrs) -> Arrays:
        (x,) = arrays
        return (np.asarray(pick(x, axis=attrs["axes"], keepdims=attrs["keepdims"])),)

    return evaluate


def _eval_prod(arrays: Arrays, attrs: Attrs) -> Arrays:
    (x,) = arrays
    product = np.prod(x, axis=attrs["axes"], keepdims=attrs["keepdims"], dtype=_wide(x))
    return (np.asarray(product, dtype=x.dtype),)


def _wide(x: np.ndarray) -> Any:
    """Accumulate floats in double precision: the oracle must be more accurate than the code it
    checks.
    """
    return np.float64 if x.dtype.kind == "f" else x.dtype


define("reduce_sum", "x", attrs=AXES, infer=_infer, eval=_eval_sum, vjp={"x": _sum_dx}, linear=(0,))
define(
    "reduce_mean",
    "x",
    attrs=AXES,
    infer=_infer,
    eval=_eval_mean,
    vjp={"x": _mean_dx},
    linear=(0,),
    means=True,
)
for _name, _pick in (("reduce_max", np.max), ("reduce_min", np.min)):
    define(_name, "x", attrs=AXES, infer=_infer, eval=_eval_extreme(_pick), vjp={"x": _extreme_dx})
define("reduce_prod", "x", attrs=AXES, infer=_infer, eval=_eval_prod, vjp={"x": _prod_dx})
define(
    "argmax",
    "x",
    attrs={"axis": REQUIRED},
    infer=_infer_argmax,
    eval=lambda arrays, attrs: (np.asarray(np.argmax(arrays[0], axis=attrs["axis"])),),
)
