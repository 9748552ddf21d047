"""Layer norm (each row to mean 0 and variance 1) and RMS norm (to root mean square 1).

    layer_norm  y = (x - mean) rstd,  rstd = 1 / sqrt(var + eps);   results y, rstd
    rms_norm    y = x rstd,           rstd = 1 / sqrt(mean(x^2) + eps)

Scale and shift are elementwise nodes after it. rstd keeps the last axis with size 1. The backward
pass needs y and rstd only, so x need not be stored.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Formula, Types, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]


def _infer(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    if x.rank < 1 or x.dtype is not F32:
        raise GraphError(f"row normalization needs an f32 tensor with a last axis, not {x}")
    return (x, x.with_shape((*x.shape[:-1], 1)))


def _infer_dx(types: Types, attrs: Attrs) -> Types:
    dy, y, rstd = types
    if dy != y or _infer((y,), attrs)[1] != rstd:
        raise GraphError(f"the cotangent {dy} does not fit rows {y} with {rstd}")
    return (y,)


def _evaluator(centered: bool) -> Callable[[Arrays, Attrs], Arrays]:
    def evaluate(arrays: Arrays, attrs: Attrs) -> Arrays:
        x = arrays[0].astype(np.float64)
        if centered:
            x = x - x.mean(-1, keepdims=True)
        rstd = 1 / np.sqrt(np.square(x).mean(-1, keepdims=True) + attrs["eps"])
        return (x * rstd).astype(np.float32), rstd.astype(np.float32)

    return evaluate


def _dx_evaluator(centered: bool) -> Callable[[Arrays, Attrs], Arrays]:
    def evaluate(arrays: Arrays, attrs: Attrs) -> Arrays:
        dy, y, rstd = (array.astype(np.float64) for array in arrays)
        dx = dy - y * (dy * y).mean(-1, keepdims=True)
        if centered:
            dx = dx - dy.mean(-1, keepdims=True)
        return ((dx * rstd).astype(np.float32),)

    return evaluate


def _layer_norm_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """dx = rstd (dy - mean(dy) - y mean(dy y))."""
    return g.layer_norm_dx(dy, *node.results)


def _rms_norm_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """dx = rstd (dy - y mean(dy y))."""
    return g.rms_norm_dx(dy, *node.results)


def _formula(centered: bool) -> Formula:
    def formula(g: "Builder", node: Node) -> Value:
        x = node.operands[0]
        last = {"axes": (len(x.shape) - 1,), "keepdims": True}
        if centered:
            x = g.sub(x, g.reduce_mean(x, **last))
        square = g.reduce_mean(g.square(x), **last)
        return g.mul(x, g.rsqrt(g.add(square, g.scalar(node.attrs["eps"]))))

    return formula


for _name, _centered, _rule in (
    ("layer_norm", True, _layer_norm_dx),
    ("rms_norm", False, _rms_norm_dx),
):
    define(
        _name,
        "x",
        attrs={"eps": REQUIRED},
        infer=_infer,
        eval=_evaluator(_centered),
        vjp={"x": _rule},
        formula=_formula(_centered),
        rows=True,
    )
    define(
        f"{_name}_dx",
        "dy y rstd",
        infer=_infer_dx,
        eval=_dx_evaluator(_centered),
        linear=(0, 2),
        rows=True,
    )
