"""The common optimizers, with PyTorch's semantics and field names."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Value
from pockengine.compiler.optim.base import Results, Update
from pockengine.compiler.optim.formulas import blend, decayed, scaled, shrunk
from pockengine.errors import CompileError

ANY = (0.0, math.inf)
SHARE = (0.0, 1.0)


def check(optimizer: object, **ranges: tuple[float, float]) -> None:
    """Raise CompileError unless each named field lies in its half-open range."""
    for name, (low, high) in ranges.items():
        value = getattr(optimizer, name)
        if not low <= value < high:
            bound = f"at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g})"
            raise CompileError(f"{optimizer}: {name} must be {bound}")


def check_betas(optimizer: Any) -> None:
    """Raise CompileError unless both betas are at least 0 and below 1."""
    if not all(0 <= beta < 1 for beta in optimizer.betas):
        raise CompileError(f"{optimizer}: betas must lie in [0, 1)")


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent; `dampening` of momentum skips the first step, as in PyTorch."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0

    def __post_init__(self) -> None:
        check(self, momentum=SHARE, weight_decay=ANY, dampening=(-math.inf, math.inf))
        if self.nesterov and (not self.momentum or self.dampening):
            raise CompileError(f"{self}: nesterov needs a momentum, and no dampening")

    def update(self, update: Update) -> None:
        """Append `sgd_update`; with momentum also a velocity."""
        if self.momentum and self.dampening:
            self._dampened(update)
            return
        states = [update.state("velocity")] if self.momentum else []
        update.emit(
            "sgd_update",
            update.grad,
            update.lr,
            *states,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
        )

    def _dampened(self, update: Update) -> None:
        """v = m v + (1 - dampening) g';  p -= lr v, with v = g' at the first step."""
        g = update.g
        first = g.le(update.step, g.scalar(1.0))
        share = g.where(first, g.scalar(1.0), g.scalar(1.0 - self.dampening))

        def formula(g: Builder, p: Value, dp: Value, lr: Value, share: Value, v: Value) -> Results:
            dp = decayed(g, p, dp, self.weight_decay)
            v = g.add(g.mul(v, g.scalar(self.momentum)), g.mul(dp, share))
            return g.sub(p, g.mul(lr, v)), v

        update.by_elements(formula, (update.lr, share), update.state("velocity"))


@dataclass(frozen=True)
class Adam:
    """Adam (arXiv 1412.6980); weight decay is added to the gradient.

    `amsgrad` divides by the largest second moment so far (arXiv 1904.09237).
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    def __post_init__(self) -> None:
        check(self, eps=ANY, weight_decay=ANY)
        check_betas(self)

    def update(self, update: Update) -> None:
        """Append `adam_update` with its two moments."""
        self._append(update, decoupled=False)

    def _append(self, update: Update, *, decoupled: bool) -> None:
        g, lr = update.g, update.lr
        rate = g.div(lr, update.correction(self.betas[0]))
        root = g.rsqrt(update.correction(self.betas[1]))
        if self.amsgrad:
            self._amsgrad(update, (lr, rate, root), decoupled)
            return
        update.emit(
            "adam_update",
            update.grad,
            lr,
            rate,
            root,
            update.state("first"),
            update.state("second"),
            beta1=self.betas[0],
            beta2=self.betas[1],
            eps=self.eps,
            weight_decay=self.weight_decay,
            decoupled=decoupled,
        )

    def _amsgrad(self, update: Update, scalars: Sequence[Value], decoupled: bool) -> None:
        def formula(g: Builder, p: Value, dp: Value, *operands: Value) -> Results:
            lr, rate, root, first, second, most = operands
            if decoupled:
                p = shrunk(g, p, lr, self.weight_decay)
            else:
                dp = decayed(g, p, dp, self.weight_decay)
            first = blend(g, first, dp, self.betas[0])
            second = blend(g, second, g.square(dp), self.betas[1])
            most = g.maximum(most, second)
            below = g.add(g.mul(g.sqrt(most), root), g.scalar(self.eps))
            return g.sub(p, g.div(g.mul(rate, first), below)), first, second, most

        states = [update.state(name) for name in ("first", "second", "most")]
        update.by_elements(formula, scalars, *states)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (arXiv 1711.05101)."""

    weight_decay: float = 0.01

    def update(self, update: Update) -> None:
        """Append `adam_update` with its two moments."""
        self._append(update, decoupled=True)


@dataclass(frozen=True)
class RMSprop:
    """RMSprop; `centered` uses the gradient's variance instead of its mean square."""

    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    def __post_init__(self) -> None:
        check(self, alpha=SHARE, eps=ANY, weight_decay=ANY, momentum=SHARE)

    def update(self, update: Update) -> None:
        """Append `rmsprop_update`; with momentum also a velocity."""
        if self.centered:
            self._centered(update)
            return
        states = [update.state("square")]
        if self.momentum:
            states.append(update.state("velocity"))
        update.emit(
            "rmsprop_update",
            update.grad,
            update.lr,
            *states,
            alpha=self.alpha,
            eps=self.eps,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
        )

    def _centered(self, update: Update) -> None:
        """s and a, the means of g^2 and g;  v = m v + g / (sqrt(s - a^2) + eps);  p -= lr v."""

        def formula(g: Builder, p: Value, dp: Value, *operands: Value) -> Results:
            lr, square, mean, *velocity = operands
            dp = decayed(g, p, dp, self.weight_decay)
            square = blend(g, square, g.square(dp), self.alpha)
            mean = blend(g, mean, dp, self.alpha)
            # Rounding may make the variance of a constant gradient negative.
            variance = g.maximum(g.sub(square, g.square(mean)), g.scalar(0.0))
            step = scaled(g, dp, variance, self.eps)
            if not velocity:
                return g.sub(p, g.mul(lr, step)), square, mean
            step = g.add(g.mul(velocity[0], g.scalar(self.momentum)), step)
            return g.sub(p, g.mul(lr, step)), square, mean, step

        names = ("square", "average", *(("velocity",) if self.momentum else ()))
        update.by_elements(formula, (update.lr,), *map(update.state, names))


@dataclass(frozen=True)
class Adagrad:
    """Adagrad; `lr_decay` divides the rate by 1 + (step - 1) lr_decay."""

    lr_decay: float = 0.0
    weight_decay: float = 0.0
    eps: float = 1e-10
    initial_accumulator_value: float = 0.0

    def __post_init__(self) -> None:
        check(self, lr_decay=ANY, weight_decay=ANY, eps=ANY, initial_accumulator_value=ANY)

    def update(self, update: Update) -> None:
        """Append `adagrad_update` with its sum of squares."""
        g, rate = update.g, update.lr
        if self.lr_decay:
            past = g.sub(update.step, g.scalar(1.0))
            rate = g.div(rate, g.add(g.scalar(1.0), g.mul(past, g.scalar(self.lr_decay))))
        update.emit(
            "adagrad_update",
            update.grad,
            rate,
            update.state("square", start=self.initial_accumulator_value),
            eps=self.eps,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True)
class Lion:
    """Lion (arXiv 2302.06675): the sign of a blended momentum, with decoupled weight decay."""

    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check(self, weight_decay=ANY)
        check_betas(self)

    def update(self, update: Update) -> None:
        """Append `lion_update` with its momentum."""
        update.emit(
            "lion_update",
            update.grad,
            update.lr,
            update.state("first"),
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
        )
