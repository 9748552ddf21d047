"""The transformations that optax chains, as formulas: links of an `OptaxChain`.

Their fields have optax's names and meaning. `frontends/jax/optimizers.py` reads them from a
transformation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.compiler.ir import Builder, Value
from pockengine.compiler.optim import Update
from pockengine.compiler.optim.formulas import blend, decayed
from pockengine.compiler.optim.layerwise import trust_ratio
from pockengine.errors import CompileError
from pockengine.frontends.jax.optax_chain import Before, Link, Moved


@dataclass(frozen=True)
class Rate(Link):
    """scale_by_learning_rate: the rate is an input of each step."""

    def scalars(self, update: Update, before: Before) -> Sequence[Value]:
        """Return the rate."""
        return (update.lr,)

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """-lr u."""
        (lr,) = inputs
        return g.neg(g.mul(lr, u)), ()


@dataclass(frozen=True)
class Scale(Link):
    """scale."""

    step_size: float

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """step_size u."""
        return g.mul(u, g.scalar(self.step_size)), ()


@dataclass(frozen=True)
class Limit(Link):
    """clip."""

    max_delta: float

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """U, clipped to +-max_delta."""
        return g.clamp(u, min=-self.max_delta, max=self.max_delta), ()


@dataclass(frozen=True)
class Decay(Link):
    """add_decayed_weights."""

    weight_decay: float

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """U + d p."""
        return decayed(g, p, u, self.weight_decay), ()


@dataclass(frozen=True)
class SignLink(Link):
    """scale_by_sign."""

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """-1, 0 or 1."""
        return g.sign(u), ()


@dataclass(frozen=True)
class TrustRatio(Link):
    """scale_by_trust_ratio."""

    trust_coefficient: float
    eps: float

    def scalars(self, update: Update, before: Before) -> Sequence[Value]:
        """Return the ratio of the norms."""
        ratio = trust_ratio(
            update.g, update.part, before(), coefficient=self.trust_coefficient, eps=self.eps
        )
        return (ratio,)

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """U by the ratio."""
        (ratio,) = inputs
        return g.mul(u, ratio), ()


@dataclass(frozen=True)
class Trace(Link):
    """trace."""

    decay: float
    nesterov: bool

    @property
    def states(self) -> Sequence[tuple[str, float]]:
        """Its state per element."""
        return (("trace", 0.0),)

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """t = u + decay t;  t, or u + decay t if nesterov."""
        (trace,) = inputs
        decay = g.scalar(self.decay)
        trace = g.add(u, g.mul(trace, decay))
        return (g.add(u, g.mul(trace, decay)) if self.nesterov else trace), (trace,)


@dataclass(frozen=True)
class AdamLink(Link):
    """scale_by_adam, and with `most` scale_by_amsgrad."""

    b1: float
    b2: float
    eps: float
    eps_root: float
    nesterov: bool = False
    most: bool = False

    def __post_init__(self) -> None:
        check_betas(self, self.b1, self.b2)

    @property
    def states(self) -> Sequence[tuple[str, float]]:
        """The moments."""
        return (("first", 0.0), ("second", 0.0), *((("most", 0.0),) if self.most else ()))

    def scalars(self, update: Update, before: Before) -> Sequence[Value]:
        """Return the factors that undo the moments' bias, of the first also a step later."""
        factors = unbias(update, self.b1), unbias(update, self.b2), unbias(update, self.b1, 1)
        return factors if self.nesterov else factors[:2]

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """M' / (sqrt(v' + eps_root) + eps), of the moments without bias."""
        later = inputs[2:3] if self.nesterov else ()
        by_first, by_second, first, second, *most = (*inputs[:2], *inputs[2 + len(later) :])
        first, second = blend(g, first, u, self.b1), blend(g, second, g.square(u), self.b2)
        ahead = g.mul(first, by_first)
        for factor in later:
            ahead = blend(g, g.mul(first, factor), g.mul(u, by_first), self.b1)
        square = g.mul(second, by_second)
        most = [g.maximum(largest, square) for largest in most]
        root = g.sqrt(g.add(most[0] if most else square, g.scalar(self.eps_root)))
        return g.div(ahead, g.add(root, g.scalar(self.eps))), (first, second, *most)


@dataclass(frozen=True)
class Belief(Link):
    """scale_by_belief."""

    b1: float
    b2: float
    eps: float
    eps_root: float

    @property
    def states(self) -> Sequence[tuple[str, float]]:
        """Its state per element."""
        return (("first", 0.0), ("second", 0.0))

    def __post_init__(self) -> None:
        check_betas(self, self.b1, self.b2)

    def scalars(self, update: Update, before: Before) -> Sequence[Value]:
        """Return the factors that undo the moments' bias."""
        return unbias(update, self.b1), unbias(update, self.b2)

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """Adam by the variance around the first moment."""
        by_first, by_second, first, second = inputs
        first = blend(g, first, u, self.b1)
        second = blend(g, second, g.square(g.sub(u, first)), self.b2)
        second = g.add(second, g.scalar(self.eps_root))
        below = g.add(g.sqrt(g.mul(second, by_second)), g.scalar(self.eps))
        return g.div(g.mul(first, by_first), below), (first, second)


@dataclass(frozen=True)
class Yogi(Link):
    """scale_by_yogi."""

    b1: float
    b2: float
    eps: float
    eps_root: float
    initial_accumulator_value: float

    def __post_init__(self) -> None:
        check_betas(self, self.b1, self.b2)

    @property
    def states(self) -> Sequence[tuple[str, float]]:
        """The moments."""
        start = self.initial_accumulator_value
        return (("first", start), ("second", start))

    def scalars(self, update: Update, before: Before) -> Sequence[Value]:
        """Return the factors that undo the moments' bias."""
        return unbias(update, self.b1), unbias(update, self.b2)

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """Adam with v -= (1 - b2) sign(v - u^2) u^2."""
        by_first, by_second, first, second = inputs
        first, square = blend(g, first, u, self.b1), g.square(u)
        sign = g.sign(g.sub(second, square))
        second = g.sub(second, g.mul(g.scalar(1 - self.b2), g.mul(sign, square)))
        root = g.sqrt(g.add(g.mul(second, by_second), g.scalar(self.eps_root)))
        step = g.div(g.mul(first, by_first), g.add(root, g.scalar(self.eps)))
        return step, (first, second)


@dataclass(frozen=True)
class AdamaxLink(Link):
    """scale_by_adamax."""

    b1: float
    b2: float
    eps: float

    @property
    def states(self) -> Sequence[tuple[str, float]]:
        """Its state per element."""
        return (("first", 0.0), ("most", 0.0))

    def __post_init__(self) -> None:
        check_betas(self, self.b1, self.b2)

    def scalars(self, update: Update, before: Before) -> Sequence[Value]:
        """Return the factor that undoes the first moment's bias."""
        return (unbias(update, self.b1),)

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """M' / max(b2 w, |u| + eps)."""
        factor, first, most = inputs
        first = blend(g, first, u, self.b1)
        most = g.maximum(g.mul(most, g.scalar(self.b2)), g.add(g.abs(u), g.scalar(self.eps)))
        return g.div(g.mul(first, factor), most), (first, most)


@dataclass(frozen=True)
class Rms(Link):
    """scale_by_rms, and with `centered` scale_by_stddev, both without bias correction."""

    decay: float
    eps: float
    eps_in_sqrt: bool
    initial_scale: float
    centered: bool = False

    @property
    def states(self) -> Sequence[tuple[str, float]]:
        """The mean square, and the mean if centered."""
        return (("square", self.initial_scale), *((("mean", 0.0),) if self.centered else ()))

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """U / sqrt(s + eps), or u / (sqrt(s) + eps)."""
        square, *mean = inputs
        square = blend(g, square, g.square(u), self.decay)
        means = [blend(g, old, u, self.decay) for old in mean]
        variance, eps = square, g.scalar(self.eps)
        for new in means:
            variance = g.sub(variance, g.square(new))
        if self.eps_in_sqrt:
            return g.mul(u, g.rsqrt(g.add(variance, eps))), (square, *means)
        return g.div(u, g.add(g.sqrt(variance), eps)), (square, *means)


@dataclass(frozen=True)
class Rss(Link):
    """scale_by_rss."""

    eps: float
    initial_accumulator_value: float

    @property
    def states(self) -> Sequence[tuple[str, float]]:
        """The sum of squares."""
        return (("square", self.initial_accumulator_value),)

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """U / sqrt(s + eps), 0 where s is."""
        (square,) = inputs
        square = g.add(square, g.square(u))
        step = g.mul(u, g.rsqrt(g.add(square, g.scalar(self.eps))))
        zero = g.scalar(0.0)
        return g.where(g.gt(square, zero), step, zero), (square,)


@dataclass(frozen=True)
class AdadeltaLink(Link):
    """scale_by_adadelta."""

    rho: float
    eps: float

    @property
    def states(self) -> Sequence[tuple[str, float]]:
        """Its state per element."""
        return (("square", 0.0), ("moved", 0.0))

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """U sqrt(d + eps) / sqrt(s + eps)."""
        square, moved = inputs
        eps = g.scalar(self.eps)
        square = blend(g, square, g.square(u), self.rho)
        step = g.mul(u, g.div(g.sqrt(g.add(moved, eps)), g.sqrt(g.add(square, eps))))
        return step, (square, blend(g, moved, g.square(step), self.rho))


@dataclass(frozen=True)
class LionLink(Link):
    """scale_by_lion."""

    b1: float
    b2: float

    @property
    def states(self) -> Sequence[tuple[str, float]]:
        """Its state per element."""
        return (("first", 0.0),)

    def move(self, g: Builder, p: Value, u: Value, *inputs: Value) -> Moved:
        """The sign of a blended momentum."""
        (first,) = inputs
        return g.sign(blend(g, first, u, self.b1)), (blend(g, first, u, self.b2),)


def unbias(update: Update, beta: float, later: int = 0) -> Value:
    """1 / (1 - beta^step), of this step or a later one."""
    g = update.g
    if not later or not beta:
        return g.div(g.scalar(1.0), update.correction(beta))
    step = g.mul(g.add(update.step, g.scalar(float(later))), g.scalar(math.log(beta)))
    return g.div(g.scalar(1.0), g.neg(g.expm1(step)))


def check_betas(link: object, *betas: float) -> None:
    """Raise CompileError unless all are at least 0 and below 1."""
    if not all(0 <= beta < 1 for beta in betas):
        raise CompileError(f"{link}: betas must lie in [0, 1)")
