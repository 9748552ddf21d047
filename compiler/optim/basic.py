"""The common optimisers, with PyTorch's meaning and names of every field."""

import math
from dataclasses import dataclass

from pockengine.compiler.ir.graph import Value
from pockengine.compiler.optim.base import Update
from pockengine.errors import CompileError


def check(optimizer: object, **ranges: tuple[float, float]) -> None:
    """Raise CompileError unless each named field lies in its half-open range."""
    for name, (low, high) in ranges.items():
        value = getattr(optimizer, name)
        if not low <= value < high:
            bound = f"at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g})"
            raise CompileError(f"{optimizer}: {name} must be {bound}")


_ANY = (0.0, math.inf)
_SHARE = (0.0, 1.0)


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        check(self, momentum=_SHARE, weight_decay=_ANY)
        if self.nesterov and not self.momentum:
            raise CompileError(f"{self}: nesterov needs a momentum")

    def update(self, update: Update) -> None:
        """Append `sgd_update`; with momentum also a velocity."""
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


@dataclass(frozen=True)
class Adam:
    """Adam (arXiv 1412.6980); weight decay is added to the gradient."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check(self, eps=_ANY, weight_decay=_ANY)
        if not all(0 < beta < 1 for beta in self.betas):
            raise CompileError(f"{self}: betas must lie between 0 and 1")

    def update(self, update: Update) -> None:
        """Append `adam_update` with its two moments."""
        self._append(update, decoupled=False)

    def _append(self, update: Update, *, decoupled: bool) -> None:
        g, lr = update.g, update.lr
        rate = g.div(lr, _correction(update, self.betas[0]))
        root = g.rsqrt(_correction(update, self.betas[1]))
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


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (arXiv 1711.05101)."""

    weight_decay: float = 0.01

    def update(self, update: Update) -> None:
        """Append `adam_update` with its two moments."""
        self._append(update, decoupled=True)


@dataclass(frozen=True)
class RMSprop:
    """RMSprop, not centred."""

    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        check(self, alpha=_SHARE, eps=_ANY, weight_decay=_ANY, momentum=_SHARE)

    def update(self, update: Update) -> None:
        """Append `rmsprop_update`; with momentum also a velocity."""
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


@dataclass(frozen=True)
class Adagrad:
    """Adagrad; `lr_decay` divides the rate by 1 + (step - 1) lr_decay."""

    lr_decay: float = 0.0
    weight_decay: float = 0.0
    eps: float = 1e-10

    def __post_init__(self) -> None:
        check(self, lr_decay=_ANY, weight_decay=_ANY, eps=_ANY)

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
            update.state("square"),
            eps=self.eps,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True)
class Lion:
    """Lion (arXiv 2302.06675): the sign of a blended momentum, with decoupled weight decay."""

    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check(self, weight_decay=_ANY)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise CompileError(f"{self}: betas must lie in [0, 1)")

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


def _correction(update: Update, beta: float) -> Value:
    """1 - beta^step, without the cancellation that a power in f32 would suffer."""
    g = update.g
    return g.neg(g.expm1(g.mul(update.step, g.scalar(math.log(beta)))))
