"""Recognize the mean cross entropy of logits and labels, which has a kernel of its own."""

import numpy as np

from pockengine.compiler.ir import BOOL, F32, Value
from pockengine.compiler.ir.graph import Node
from pockengine.frontends.idioms.finder import Finder, core, made_by
from pockengine.frontends.idioms.rows import log_sum_exp

NO_LABEL = 1 - 2**31
"""No label is left out of a mean."""


def mean_of_log_sum_exp(finder: Finder, node: Node) -> Value | None:
    """Mean of the rows' log sum exp(x) - x[label]: the op, which gives NaN for a foreign label."""
    losses = node.operands[0].node
    if node.result.shape or losses is None or losses.op != "sub":
        return None
    x = log_sum_exp(finder, losses.operands[0].node)
    picked = _picked(finder, losses.operands[1])
    if x is None or picked is None or core(picked.operands[0]) is not core(x):
        return None
    g, labels, rows = finder.g, picked.operands[1], x.type.size // x.shape[-1]
    along = picked.operands[0].shape[picked.attrs["axis"]]
    if labels.type.size != rows or along != x.shape[-1] or losses.result.type.size != rows:
        return None
    logits = g.reshape(x, shape=(rows, x.shape[-1]))
    return g.cross_entropy(logits, g.reshape(labels, shape=(rows,)), ignore_index=NO_LABEL)


def _picked(finder: Finder, value: Value) -> Node | None:
    """Return the gather along a dimension, with or without NaN for indices out of bounds."""
    filled = made_by(value, "where")
    if filled is None:
        return made_by(value, "take_along")
    fill = finder.g.graph.constants.get(core(filled.operands[2]))
    missing = fill is not None and np.isnan(fill).all()
    return made_by(filled.operands[1], "take_along") if missing else None


def mean_of_log_softmax(finder: Finder, node: Node) -> Value | None:
    """mean(-log_softmax(logits)[labels]), also as a sum over a number."""
    if node.op == "div":
        total, count = made_by(node.operands[0], "reduce_sum"), finder.number(node.operands[1])
    else:
        total, count = node, float(node.operands[0].type.size)
    negated = made_by(total.operands[0], "neg") if total else None
    picked = made_by(negated.operands[0], "take_along") if negated else None
    scores = made_by(picked.operands[0], "log_softmax") if picked else None
    if picked is None or scores is None or node.result.shape:
        return None
    logits = scores.operands[0]
    if len(logits.shape) != 2 or picked.result.type.size != count or count != logits.shape[0]:
        return None
    labels = _before_casts(picked.operands[1])
    if labels.shape != logits.shape[:1]:
        labels = finder.g.reshape(labels, shape=logits.shape[:1])
    return finder.g.cross_entropy(logits, labels)


def _before_casts(labels: Value) -> Value:
    """Undo casts to float and back: a class that f32 cannot hold is not a class of the logits."""
    labels = core(labels, ("reshape",))
    while labels.node is not None and labels.node.op == "cast":
        before = core(labels.node.operands[0], ("reshape",))
        if before.dtype is BOOL or (before.dtype is F32 and before.node is None):
            break
        labels = before
    return labels
