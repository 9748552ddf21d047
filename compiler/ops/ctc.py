"""Connectionist temporal classification of frames by labels without alignment (Graves, 2006).

    logits (T, N, C) f32   labels (N, S)   lengths, label_lengths (N,), all i32 or i64   losses (N,)

A loss is -log of the total probability of all paths through a sample's frames that collapse (merge
repeats, then drop blanks) to its labels. It is infinite if no path is short enough. Lengths are
clamped to [0, T] and [0, S]; labels beyond them are ignored. A label outside the classes makes the
loss NaN, as in `cross_entropy`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops.registry import Arrays, Types, define
from pockengine.compiler.ops.softmax import log_softmax_rows
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]


def _check(types: Types, attrs: Attrs) -> TensorType:
    logits, labels, lengths, label_lengths = types
    if logits.rank != 3 or logits.dtype is not F32:
        raise GraphError(f"ctc_loss needs f32 logits (frames, samples, classes), not {logits}")
    samples = logits.shape[1]
    if labels.rank != 2 or labels.shape[0] != samples or not labels.dtype.is_integer:
        raise GraphError(f"ctc_loss of {logits} needs integer labels ({samples}, S), not {labels}")
    for counts in (lengths, label_lengths):
        if counts.shape != (samples,) or not counts.dtype.is_integer:
            raise GraphError(f"ctc_loss of {logits} needs a length a sample, not {counts}")
    if not 0 <= attrs["blank"] < logits.shape[2]:
        raise GraphError(f"ctc_loss: blank {attrs['blank']} is none of the classes of {logits}")
    return TensorType(F32, (samples,))


def _infer(types: Types, attrs: Attrs) -> Types:
    return (_check(types, attrs),)


def _infer_dx(types: Types, attrs: Attrs) -> Types:
    *operands, dy = types
    if _check(tuple(operands), attrs) != dy:
        raise GraphError(f"ctc_loss_dx: {dy} is no cotangent of losses of {types[0]}")
    return (types[0],)


class _Sample:
    """One sample's log-probabilities along the extended labels: blank, label, blank, ..., label,
    blank.
    """

    def __init__(self, arrays: Arrays, sample: int, blank: int) -> None:
        logits, labels, lengths, label_lengths = arrays[:4]
        self.frames = int(np.clip(lengths[sample], 0, logits.shape[0]))
        count = int(np.clip(label_lengths[sample], 0, labels.shape[1]))
        own = labels[sample, :count]
        self.wrong = bool(((own < 0) | (own >= logits.shape[2])).any())
        self.path = np.full(2 * count + 1, blank)
        self.path[1::2] = 0 if self.wrong else own
        self.rows = log_softmax_rows(logits[: self.frames, sample].astype(np.float64))
        skipped = np.where(self.path[2:] != self.path[:-2], 0.0, -np.inf)
        self.skips = np.where(np.arange(2, len(self.path)) % 2 == 1, skipped, -np.inf)

    def forward(self) -> np.ndarray:
        """Forward variables: log-probability of all prefixes that end at each frame and
        position.
        """
        alpha = np.full((self.frames, len(self.path)), -np.inf)
        for frame, row in enumerate(self.rows[:, self.path]):
            if frame == 0:
                alpha[0, :2] = row[:2]
                continue
            before, here = alpha[frame - 1], alpha[frame]
            here[:] = before
            here[1:] = np.logaddexp(here[1:], before[:-1])
            here[2:] = np.logaddexp(here[2:], before[:-2] + self.skips)
            here += row
        return alpha

    def backward(self) -> np.ndarray:
        """Backward variables: log-probability of all suffixes that begin at each frame and
        position.
        """
        beta = np.full((self.frames, len(self.path)), -np.inf)
        for frame in reversed(range(self.frames)):
            row, here = self.rows[frame, self.path], beta[frame]
            if frame == self.frames - 1:
                here[-2:] = row[-2:]
                continue
            after = beta[frame + 1]
            here[:] = after
            here[:-1] = np.logaddexp(here[:-1], after[1:])
            here[:-2] = np.logaddexp(here[:-2], after[2:] + self.skips)
            here += row
        return beta

    def loss(self, alpha: np.ndarray) -> float:
        if self.wrong:
            return float("nan")
        if not self.frames:
            return 0.0 if len(self.path) == 1 else float("inf")
        return float(-np.logaddexp.reduce(alpha[-1, -2:]))


def _eval(arrays: Arrays, attrs: Attrs) -> Arrays:
    losses = []
    for sample in range(arrays[0].shape[1]):
        one = _Sample(arrays, sample, attrs["blank"])
        losses.append(one.loss(one.forward()))
    return (np.asarray(losses, np.float32),)


def _eval_dx(arrays: Arrays, attrs: Attrs) -> Arrays:
    dx = np.zeros(arrays[0].shape)
    for sample, dy in enumerate(arrays[4]):
        one = _Sample(arrays, sample, attrs["blank"])
        alpha = one.forward()
        loss = one.loss(alpha)
        if not dy:
            continue
        if not np.isfinite(loss):
            dx[: one.frames, sample] = np.nan
            continue
        shares = np.exp(alpha + one.backward() - one.rows[:, one.path] + loss)
        part = np.exp(one.rows)
        for place, label in enumerate(one.path):
            part[:, label] -= shares[:, place]
        dx[: one.frames, sample] = part * dy
    return (dx.astype(np.float32),)


def _dlogits(g: "Builder", node: Node, dy: Value) -> Value:
    """dlogits = dy (softmax(logits) - posterior of each class at a frame)."""
    return g.ctc_loss_dx(*node.operands, dy, **node.attrs)


def _cost(node: Node) -> int:
    """Three log-additions per frame and position; twice that for the gradient."""
    frames, samples, _ = node.operands[0].shape
    return frames * samples * 3 * (2 * node.operands[1].shape[1] + 1)


define(
    "ctc_loss",
    "logits labels lengths label_lengths",
    attrs={"blank": 0},
    infer=_infer,
    eval=_eval,
    vjp={"logits": _dlogits},
    cost=_cost,
)
define(
    "ctc_loss_dx",
    "logits labels lengths label_lengths dy",
    attrs={"blank": 0},
    infer=_infer_dx,
    eval=_eval_dx,
    linear=(4,),
    cost=lambda node: 2 * _cost(node),
)
