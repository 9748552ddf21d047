"""Softmax and log-softmax over the last axis, computed stably relative to the row's maximum."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32
from pockengine.compiler.ops.registry import Types, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]


def _infer(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    if x.rank < 1 or x.dtype is not F32:
        raise GraphError(f"softmax needs an f32 tensor with a last axis, not {x}")
    return (x,)


def log_softmax_rows(x: np.ndarray) -> np.ndarray:
    """Log-probabilities of each row of logits, in double precision."""
    shifted = x.astype(np.float64) - x.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def _last_axis(value: Value) -> tuple[int, ...]:
    return (len(value.shape) - 1,)


def _softmax_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """y = softmax x  =>  dx = y (dy - sum(dy y))."""
    y = node.result
    inner = g.reduce_sum(g.mul(dy, y), axes=_last_axis(y), keepdims=True)
    return g.mul(y, g.sub(dy, inner))


def _log_softmax_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """y = log softmax x  =>  dx = dy - exp(y) sum(dy)."""
    y = node.result
    total = g.reduce_sum(dy, axes=_last_axis(y), keepdims=True)
    return g.sub(dy, g.mul(g.exp(y), total))


define(
    "softmax",
    "x",
    infer=_infer,
    eval=lambda arrays, attrs: (np.exp(log_softmax_rows(arrays[0])).astype(np.float32),),
    vjp={"x": _softmax_dx},
    rows=True,
)
define(
    "log_softmax",
    "x",
    infer=_infer,
    eval=lambda arrays, attrs: (log_softmax_rows(arrays[0]).astype(np.float32),),
    vjp={"x": _log_softmax_dx},
    rows=True,
)
