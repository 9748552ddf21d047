"""Adafactor (arXiv 1804.04235): the second moment is factored into a row and a column.

Matches torch.optim.Adafactor: the factored dimensions are the last two of the parameter in the
framework's order, given by its permutation.
"""

import math
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.graph import Value
from pockengine.compiler.optim.base import Update
from pockengine.compiler.optim.basic import check

_EPS = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Adafactor:
    """Low-memory: an n x m matrix has n + m numbers of state. `d` clips the update's RMS."""

    beta2_decay: float = -0.8
    eps: tuple[float, float] = (_EPS, 1e-3)
    d: float = 1.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check(self, beta2_decay=(-math.inf, 0.0), d=(1.0, math.inf), weight_decay=(0.0, math.inf))

    def update(self, update: Update) -> None:
        """Append the moments and an `sgd_update` with the clipped, scaled direction."""
        g, grad = update.g, update.grad
        blend = g.pow(update.step, g.scalar(self.beta2_decay))  # 1 - beta2 of this step
        variance = (
            self._factored(update, blend) if len(grad.shape) > 1 else self._plain(update, blend)
        )
        direction = g.mul(grad, g.rsqrt(g.maximum(variance, g.scalar(self.eps[0] ** 2))))
        denominator = g.maximum(g.scalar(1.0), _rms(update, direction, 1 / self.d))
        scale = g.maximum(g.scalar(self.eps[1]), _rms(update, update.part, 1.0))
        rate = g.minimum(update.lr, g.rsqrt(update.step))
        step = g.mul(direction, g.div(g.mul(scale, rate), denominator))
        if self.weight_decay:
            decay = g.mul(update.lr, g.scalar(self.weight_decay))
            step = g.add(step, g.mul(update.part, decay))
        update.emit("sgd_update", step, g.scalar(1.0))

    def _plain(self, update: Update, blend: Value) -> Value:
        return update.track("square", update.g.square(update.grad), blend)

    def _factored(self, update: Update, blend: Value) -> Value:
        """Outer product of row means and column means, over the mean of the rows."""
        g, square = update.g, update.g.square(update.grad)
        order = update.param.permutation or tuple(range(len(square.shape)))
        last, other = order.index(len(order) - 1), order.index(len(order) - 2)
        rows = update.track("rows", g.reduce_mean(square, axes=(last,), keepdims=True), blend)
        columns = update.track(
            "columns", g.reduce_mean(square, axes=(other,), keepdims=True), blend
        )
        mean = g.maximum(g.reduce_mean(rows, axes=(other,), keepdims=True), g.scalar(self.eps[0]))
        return g.div(g.mul(rows, columns), mean)


def _rms(update: Update, value: Value, factor: float) -> Value:
    """Root mean square of all elements, times a factor."""
    g = update.g
    axes = tuple(range(len(value.shape)))
    square = g.square(value)
    mean = g.reduce_mean(square, axes=axes) if axes else square
    return g.mul(g.sqrt(mean), g.scalar(factor))
