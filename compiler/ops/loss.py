"""Cross entropy of integer labels, the one loss that is an op; others are built from primitives.

logits (N, C) f32   labels (N,) i32 or i64   loss () = mean over N of -log softmax(logits)[label]
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32, I32, I64, TensorType
from pockengine.compiler.ops.registry import Arrays, Types, define
from pockengine.compiler.ops.softmax import log_softmax_rows
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]


def _check(logits: TensorType, labels: TensorType) -> None:
    if logits.rank != 2 or logits.dtype is not F32:
        raise GraphError(f"cross entropy needs f32 logits (batch, classes), not {logits}")
    if labels.shape != logits.shape[:1] or labels.dtype not in (I32, I64):
        raise GraphError(f"cross entropy of {logits} needs one integer label a row, not {labels}")


def _infer(types: Types, attrs: Attrs) -> Types:
    _check(*types)
    return (TensorType(F32, ()),)


def _infer_dx(types: Types, attrs: Attrs) -> Types:
    logits, labels, dy = types
    _check(logits, labels)
    if dy != TensorType(F32, ()):
        raise GraphError(f"the cotangent of a loss is a scalar, not {dy}")
    return (logits,)


def _eval(arrays: Arrays, attrs: Attrs) -> Arrays:
    logits, labels = arrays
    picked = log_softmax_rows(logits)[np.arange(len(labels)), labels]
    return (np.asarray(-picked.mean(), dtype=np.float32),)


def _eval_dx(arrays: Arrays, attrs: Attrs) -> Arrays:
    logits, labels, dy = arrays
    probabilities = np.exp(log_softmax_rows(logits))
    probabilities[np.arange(len(labels)), labels] -= 1
    return ((probabilities * (float(dy) / len(labels))).astype(np.float32),)


def _dlogits(g: "Builder", node: Node, dy: Value) -> Value:
    """dlogits = dy (softmax(logits) - onehot(labels)) / N."""
    logits, labels = node.operands
    return g.cross_entropy_dx(logits, labels, dy)


define("cross_entropy", "logits labels", infer=_infer, eval=_eval, vjp={"logits": _dlogits})
define("cross_entropy_dx", "logits labels dy", infer=_infer_dx, eval=_eval_dx)
