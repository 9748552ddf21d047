"""Cross entropy of integer labels, the one loss that is an op; others are built from primitives.

    logits (N, C) f32   labels (N,) i32 or i64   loss () = mean of -log softmax(logits)[label]

Rows whose label is `ignore_index` do not count. Any other label outside the classes makes the loss
NaN, without a read outside the row.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops.registry import Arrays, Indices, Types, define
from pockengine.compiler.ops.softmax import log_softmax_rows
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]
LOSS = {"ignore_index": -100}
"""PyTorch's default."""


def _check(logits: TensorType, labels: TensorType) -> None:
    if logits.rank != 2 or logits.dtype is not F32:
        raise GraphError(f"cross entropy needs f32 logits (batch, classes), not {logits}")
    if labels.shape != logits.shape[:1] or not labels.dtype.is_integer:
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


def _rows(logits: np.ndarray, labels: np.ndarray, attrs: Attrs) -> tuple[np.ndarray, ...]:
    """Return which rows count, each row's label clamped to the classes, and NaN for an invalid
    one.
    """
    counted = labels != attrs["ignore_index"]
    inside = (labels >= 0) & (labels < logits.shape[1])
    return counted, np.where(inside, labels, 0), np.where(inside | ~counted, 0.0, np.nan)


def _eval(arrays: Arrays, attrs: Attrs) -> Arrays:
    logits, labels = arrays
    counted, index, wrong = _rows(logits, labels, attrs)
    losses = wrong - log_softmax_rows(logits)[np.arange(len(labels)), index]
    with np.errstate(invalid="ignore"):  # no row counts: 0 / 0, as in PyTorch
        mean = np.divide(losses[counted].sum(), counted.sum())
    return (np.asarray(mean, dtype=np.float32),)


def _eval_dx(arrays: Arrays, attrs: Attrs) -> Arrays:
    logits, labels, dy = arrays
    counted, index, wrong = _rows(logits, labels, attrs)
    difference = np.exp(log_softmax_rows(logits)) + wrong[:, None]
    difference[np.arange(len(labels)), index] -= 1
    scale = float(dy) / max(int(counted.sum()), 1)
    return (np.where(counted[:, None], difference * scale, 0).astype(np.float32),)


def _dlogits(g: "Builder", node: Node, dy: Value) -> Value:
    """dlogits = dy (softmax(logits) - onehot(labels)) / N, over the N rows that count."""
    logits, labels = node.operands
    return g.cross_entropy_dx(logits, labels, dy, **node.attrs)


def _formula(g: "Builder", node: Node) -> Value:
    logits, labels = node.operands
    ignored = g.scalar(node.attrs["ignore_index"], labels.dtype)
    counted = g.ne(labels, ignored)
    index = g.where(counted, labels, g.scalar(0, labels.dtype))
    column = g.reshape(index, shape=(*labels.shape, 1))
    picked = g.take_along(g.log_softmax(logits), column, axis=1)
    likelihoods = g.where(counted, g.reshape(picked, shape=labels.shape), g.scalar(0.0))
    count = g.reduce_sum(g.cast(counted, dtype=F32), axes=(0,))
    return g.neg(g.div(g.reduce_sum(likelihoods, axes=(0,)), count))


LABELS = Indices(1, lambda node: node.operands[0].shape[1], ignored="ignore_index")

define(
    "cross_entropy",
    "logits labels",
    attrs=LOSS,
    infer=_infer,
    eval=_eval,
    vjp={"logits": _dlogits},
    formula=_formula,
    indices=LABELS,
)
define(
    "cross_entropy_dx",
    "logits labels dy",
    attrs=LOSS,
    infer=_infer_dx,
    eval=_eval_dx,
    linear=(2,),
    indices=LABELS,
)
