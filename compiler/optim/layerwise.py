"""Layer-wise adaptive rates, from the norms of a weight and its step.

Matches optax, which follows the papers. For partly trained weights, the norms are of the trained
channels.
"""

from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Value
from pockengine.compiler.optim.base import Results, Update
from pockengine.compiler.optim.basic import ANY, SHARE, check, check_betas
from pockengine.compiler.optim.formulas import blend, decayed, shrunk


@dataclass(frozen=True)
class Lars:
    """LARS (arXiv 1708.03888): momentum SGD with a rate per layer."""

    momentum: float = 0.9
    weight_decay: float = 0.0
    trust_coefficient: float = 0.001
    eps: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        check(self, momentum=SHARE, weight_decay=ANY, trust_coefficient=ANY, eps=ANY)

    def update(self, update: Update) -> None:
        """v = m v + lr trust |p| / |g'| g';  p -= v, or the step + m v if nesterov."""
        part = update.part
        step = decayed(update.g, part, update.grad, self.weight_decay)
        ratio = trust_ratio(update.g, part, step, coefficient=self.trust_coefficient, eps=self.eps)
        rate = update.g.mul(update.lr, ratio)

        def formula(g: Builder, p: Value, dp: Value, rate: Value, velocity: Value) -> Results:
            step = g.mul(rate, decayed(g, p, dp, self.weight_decay))
            momentum = g.scalar(self.momentum)
            velocity = g.add(g.mul(velocity, momentum), step)
            ahead = g.add(step, g.mul(velocity, momentum)) if self.nesterov else velocity
            return g.sub(p, ahead), velocity

        update.by_elements(formula, (rate,), update.state("velocity"))


@dataclass(frozen=True)
class Lamb:
    """LAMB (arXiv 1904.00962): AdamW with a rate per layer.

    Weight decay is part of the step that is scaled; if decoupled, it is applied before.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.0
    decoupled_weight_decay: bool = False

    def __post_init__(self) -> None:
        check(self, eps=ANY, weight_decay=ANY)
        check_betas(self)

    def update(self, update: Update) -> None:
        """p -= lr |p| / |u| u, with u = Adam's direction + d p.

        The direction is computed twice, for its norm and for the step, so it is never stored.
        """
        g = update.g
        whole = g.div(g.scalar(1.0), update.correction(self.betas[0]))
        root = g.rsqrt(update.correction(self.betas[1]))
        states = [update.state("first"), update.state("second")]
        decay = self.weight_decay
        coupled, decoupled = (0.0, decay) if self.decoupled_weight_decay else (decay, 0.0)

        def moments(g: Builder, dp: Value, first: Value, second: Value) -> Results:
            first = blend(g, first, dp, self.betas[0])
            return first, blend(g, second, g.square(dp), self.betas[1])

        def direction(g: Builder, p: Value, whole: Value, root: Value, *moments: Value) -> Value:
            first, second = moments
            below = g.add(g.mul(g.sqrt(second), root), g.scalar(self.eps))
            return decayed(g, p, g.div(g.mul(whole, first), below), coupled)

        def formula(g: Builder, p: Value, dp: Value, *operands: Value) -> Results:
            lr, ratio, whole, root, *states = operands
            p = shrunk(g, p, lr, decoupled)
            moved = moments(g, dp, *states)
            step = g.mul(g.mul(lr, ratio), direction(g, p, whole, root, *moved))
            return g.sub(p, step), *moved

        part = shrunk(g, update.part, update.lr, decoupled)
        step = direction(g, part, whole, root, *moments(g, update.grad, *states))
        update.by_elements(formula, (update.lr, trust_ratio(g, part, step), whole, root), *states)


def trust_ratio(
    g: Builder, p: Value, step: Value, coefficient: float = 1.0, eps: float = 0.0
) -> Value:
    """coefficient |p| / (|step| + eps), f32[]; 1 if either norm is 0."""
    zero, one = g.scalar(0.0), g.scalar(1.0)
    weight, size = norm(g, p), norm(g, step)
    moves = g.gt(size, zero)
    below = g.where(moves, g.add(size, g.scalar(eps)), one)
    ratio = g.div(g.mul(weight, g.scalar(coefficient)), below)
    return g.where(g.logical_and(moves, g.gt(weight, zero)), ratio, one)


def norm(g: Builder, value: Value) -> Value:
    """The 2-norm of all elements, f32[]."""
    square, axes = g.square(value), tuple(range(len(value.shape)))
    return g.sqrt(g.reduce_sum(square, axes=axes) if axes else square)
