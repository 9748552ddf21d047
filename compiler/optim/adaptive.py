"""PyTorch's optimizers that scale each element by its own history, matching PyTorch.

Each is a formula of elementwise ops (`Update.by_elements`). Factors that depend only on the step
number are scalar inputs.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Value
from pockengine.compiler.optim.base import Results, Update
from pockengine.compiler.optim.basic import ANY, SHARE, check, check_betas
from pockengine.compiler.optim.formulas import blend, decayed, shrunk
from pockengine.errors import CompileError


class Decaying(Protocol):
    """An optimizer whose weight decay is added to the gradient, or decoupled."""

    @property
    def weight_decay(self) -> float:
        """Weight decay: added to the gradient, or if decoupled, subtracted from the weight times
        the rate.
        """
        ...

    @property
    def decoupled_weight_decay(self) -> bool:
        """Whether the decay is decoupled (arXiv 1711.05101)."""
        ...


def decay(g: Builder, by: Decaying, p: Value, dp: Value, lr: Value) -> tuple[Value, Value]:
    """The decayed weight and gradient."""
    if by.decoupled_weight_decay:
        return shrunk(g, p, lr, by.weight_decay), dp
    return p, decayed(g, p, dp, by.weight_decay)


@dataclass(frozen=True)
class Adadelta:
    """Adadelta (arXiv 1212.5701): steps in proportion to the RMS of recent steps; default rate
    1.
    """

    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0
    decoupled_weight_decay: bool = False

    def __post_init__(self) -> None:
        check(self, rho=SHARE, eps=ANY, weight_decay=ANY)

    def update(self, update: Update) -> None:
        """s and d, the means of g^2 and step^2;  step = g sqrt((d + eps) / (s + eps))."""

        def formula(g: Builder, p: Value, dp: Value, *operands: Value) -> Results:
            lr, square, moved = operands
            p, dp = decay(g, self, p, dp=dp, lr=lr)
            square = blend(g, square, g.square(dp), self.rho)
            eps = g.scalar(self.eps)
            step = g.mul(dp, g.div(g.sqrt(g.add(moved, eps)), g.sqrt(g.add(square, eps))))
            moved = blend(g, moved, g.square(step), self.rho)
            return g.sub(p, g.mul(lr, step)), square, moved

        update.by_elements(formula, (update.lr,), update.state("square"), update.state("moved"))


@dataclass(frozen=True)
class Adamax:
    """Adamax: Adam with the largest recent gradient instead of the second moment (arXiv
    1412.6980).
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check(self, eps=ANY, weight_decay=ANY)
        check_betas(self)

    def update(self, update: Update) -> None:
        """u = max(b2 u, |g| + eps);  p -= rate m / u, with rate = lr / (1 - b1^t)."""

        def formula(g: Builder, p: Value, dp: Value, *operands: Value) -> Results:
            rate, first, most = operands
            dp = decayed(g, p, dp, self.weight_decay)
            first = blend(g, first, dp, self.betas[0])
            here = g.add(g.abs(dp), g.scalar(self.eps))
            most = g.maximum(g.mul(most, g.scalar(self.betas[1])), here)
            return g.sub(p, g.div(g.mul(rate, first), most)), first, most

        rate = update.g.div(update.lr, update.correction(self.betas[0]))
        update.by_elements(formula, (rate,), update.state("first"), update.state("most"))


@dataclass(frozen=True)
class NAdam:
    """NAdam: Adam with Nesterov momentum, whose decay increases with the steps."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False

    def __post_init__(self) -> None:
        check(self, eps=ANY, weight_decay=ANY, momentum_decay=ANY)
        check_betas(self)

    def update(self, update: Update) -> None:
        """p -= (lr (1 - u) / (1 - U) g + lr u' / (1 - U u') m) / (sqrt(v) root + eps).

        u and u' are the momenta of this step and the next, U is the product of all up to this one.
        """
        g = update.g
        now, ahead = self._momentum(update, 0.0), self._momentum(update, 1.0)
        state, one = update.state("product", (), start=1.0), g.scalar(1.0)
        product = g.mul(state, now)
        g.emit("assign", state, product)
        by_grad = g.div(g.mul(update.lr, g.sub(one, now)), g.sub(one, product))
        by_first = g.div(g.mul(update.lr, ahead), g.sub(one, g.mul(product, ahead)))
        root = g.rsqrt(update.correction(self.betas[1]))

        def formula(g: Builder, p: Value, dp: Value, *operands: Value) -> Results:
            lr, by_grad, by_first, root, first, second = operands
            p, dp = decay(g, self, p, dp=dp, lr=lr)
            first = blend(g, first, dp, self.betas[0])
            second = blend(g, second, g.square(dp), self.betas[1])
            below = g.add(g.mul(g.sqrt(second), root), g.scalar(self.eps))
            step = g.add(g.mul(by_grad, dp), g.mul(by_first, first))
            return g.sub(p, g.div(step, below)), first, second

        scalars = (update.lr, by_grad, by_first, root)
        update.by_elements(formula, scalars, update.state("first"), update.state("second"))

    def _momentum(self, update: Update, later: float) -> Value:
        """b1 (1 - 0.96^(t decay) / 2), of this step or a later one."""
        g = update.g
        step = g.add(update.step, g.scalar(later)) if later else update.step
        power = g.exp(g.mul(step, g.scalar(self.momentum_decay * math.log(0.96))))
        return g.mul(g.sub(g.scalar(1.0), g.mul(power, g.scalar(0.5))), g.scalar(self.betas[0]))


_FIRST_STEPS = 1000
"""By this step the length of the average has converged, even for the slowest beta."""


@dataclass(frozen=True)
class RAdam:
    """RAdam: Adam whose first steps are plain momentum (arXiv 1908.03265)."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled_weight_decay: bool = False

    def __post_init__(self) -> None:
        check(self, eps=ANY, weight_decay=ANY)
        check_betas(self)

    def update(self, update: Update) -> None:
        """p -= lr / (1 - b1^t) m (rectified / (sqrt(v) + eps) + plain); one of the two is 0."""
        g = update.g
        rate = g.div(update.lr, update.correction(self.betas[0]))
        rectified, plain = self._factors(update)

        def formula(g: Builder, p: Value, dp: Value, *operands: Value) -> Results:
            lr, rate, rectified, plain, first, second = operands
            p, dp = decay(g, self, p, dp=dp, lr=lr)
            first = blend(g, first, dp, self.betas[0])
            second = blend(g, second, g.square(dp), self.betas[1])
            scale = g.div(rectified, g.add(g.sqrt(second), g.scalar(self.eps)))
            step = g.mul(g.mul(rate, first), g.add(scale, plain))
            return g.sub(p, step), first, second

        scalars = (update.lr, rate, rectified, plain)
        update.by_elements(formula, scalars, update.state("first"), update.state("second"))

    def _factors(self, update: Update) -> tuple[Value, Value]:
        """The rectified factor, including sqrt(1 - b2^t), and the plain one."""
        g, limit, begin = update.g, self._limit, self._begin
        if begin is None:
            return g.scalar(0.0), g.scalar(1.0)
        correction = update.correction(self.betas[1])
        power = g.sub(g.scalar(1.0), correction)
        spent = g.div(g.mul(g.mul(update.step, g.scalar(2.0)), power), correction)
        # Before it counts, the square root would be of a negative number.
        length = g.maximum(g.sub(g.scalar(limit), spent), g.scalar(4.0))
        four, two = g.sub(length, g.scalar(4.0)), g.sub(length, g.scalar(2.0))
        square = g.div(g.mul(four, two), length)
        square = g.mul(square, g.scalar(limit / ((limit - 4) * (limit - 2))))
        counts = g.ge(update.step, g.scalar(float(begin)))
        rectified = g.sqrt(g.mul(square, correction))
        return (
            g.where(counts, rectified, g.scalar(0.0)),
            g.where(counts, g.scalar(0.0), g.scalar(1.0)),
        )

    @property
    def _limit(self) -> float:
        """Limit of the average's length after many steps."""
        return 2 / (1 - self.betas[1]) - 1

    @property
    def _begin(self) -> int | None:
        """The first step with an average longer than 5; computed in doubles, since f32 is off by
        a step.
        """
        beta = self.betas[1]
        lengths = (
            (step, self._limit - 2 * step * beta**step / (1 - beta**step))
            for step in range(1, _FIRST_STEPS)
        )
        return next((step for step, length in lengths if length > 5), None)


@dataclass(frozen=True)
class Rprop:
    """Rprop, resilient propagation: uses only the gradient's signs; for full batches.

    Each element has a step size, initially the rate, that grows while the sign stays.
    """

    etas: tuple[float, float] = (0.5, 1.2)
    step_sizes: tuple[float, float] = (1e-6, 50.0)

    def __post_init__(self) -> None:
        if not 0 < self.etas[0] < 1 < self.etas[1]:
            raise CompileError(f"{self}: the etas must lie below and above 1, and above 0")
        if not 0 <= self.step_sizes[0] <= self.step_sizes[1]:
            raise CompileError(f"{self}: the step sizes must rise, from 0 or more")

    def update(self, update: Update) -> None:
        """p -= sign(g) size; after a change of sign, no step is made and g is reset."""
        g = update.g
        first = g.le(update.step, g.scalar(1.0))
        start = g.where(first, update.lr, g.scalar(0.0))

        def formula(g: Builder, p: Value, dp: Value, *operands: Value) -> Results:
            start, last, size = operands
            same, zero = g.sign(g.mul(dp, last)), g.scalar(0.0)
            turned = g.lt(same, zero)
            smaller = g.where(turned, g.scalar(self.etas[0]), g.scalar(1.0))
            factor = g.where(g.gt(same, zero), g.scalar(self.etas[1]), smaller)
            low, high = self.step_sizes
            size = g.clamp(g.mul(g.add(size, start), factor), min=low, max=high)
            dp = g.where(turned, zero, dp)
            return g.sub(p, g.mul(g.sign(dp), size)), dp, size

        update.by_elements(formula, (start,), update.state("last"), update.state("size"))


@dataclass(frozen=True)
class Asgd:
    """Averaged SGD: the state `average` is the parameter's average from step `t0` on.

    The rate decays: step t + 1 uses lr / (1 + lambd lr t)^alpha, with the lr of step t, as in
    PyTorch; the first step uses its own lr.
    """

    lambd: float = 1e-4
    alpha: float = 0.75
    t0: float = 1e6
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check(self, lambd=ANY, alpha=ANY, t0=ANY, weight_decay=ANY)

    def update(self, update: Update) -> None:
        """p = p (1 - lambd eta) - eta g;  average += (p - average) / max(1, t - 1 - t0)."""
        g, one = update.g, update.g.scalar(1.0)
        state, past = update.state("eta", ()), g.sub(update.step, one)
        eta = g.where(g.le(update.step, one), update.lr, state)
        slower = g.add(one, g.mul(g.mul(update.lr, update.step), g.scalar(self.lambd)))
        g.emit("assign", state, g.div(update.lr, g.pow(slower, g.scalar(self.alpha))))
        share = g.div(one, g.maximum(one, g.sub(past, g.scalar(self.t0))))

        def formula(g: Builder, p: Value, dp: Value, *operands: Value) -> Results:
            eta, share, average = operands
            dp = decayed(g, p, dp, self.weight_decay)
            moved = g.sub(shrunk(g, p, eta, self.lambd), g.mul(eta, dp))
            return moved, g.add(average, g.mul(g.sub(moved, average), share))

        update.by_elements(formula, (eta, share), update.state("average"))
