"""Losses of preferences, and of rated or drawn answers, from log-probabilities of answers.

With c and r the log-probabilities of the answers marked 1 and -1, m = c - r, and c0, r0 and m0
before training:

    dpo         -log sigmoid(beta (m - m0))                 c and r are sums over tokens
    ipo         (m - m0 - 1 / (2 beta))^2                   means over tokens
    orpo        -c - beta log sigmoid(odds(c) - odds(r))    means; odds(p) = p - log(1 - exp(p));
                the logarithm takes p above -1e-6 as -1e-6, as the odds of 1 are infinite
    kto         1 - sigmoid(beta label (c - c0 - z))        sums; r is another row's answer
                z = max(mean over the batch of (r - r0), 0), a constant of the backward pass
    weighted    -reward c                                   means
    grpo        -advantage exp(c - c')                      means; c' is c without a gradient
    distill     -c, with c the mean of sum p (log q - log p) over tokens, as in teacher.py
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pockengine.compiler.ir import Builder, Value
from pockengine.frontends.emit.activation import log1p_exp
from pockengine.frontends.layout import plain

PAIRS, RATED, TAUGHT, DRAWN = "pairs", "rated", "taught", "drawn"
"""Forms of data: two answers to a prompt, one with a number, a text with a teacher's logits, or
prompts to which the model samples answers.
"""

NEAREST_TO_CERTAIN = -1e-6
"""Largest log-probability of finite odds: in f32 exp of one above about -6e-8 is 1."""


@dataclass(frozen=True)
class Terms:
    """Inputs of a loss, values of shape (rows,), and `beta`.

    `scores` is compared with its value before training, `reference`.
    `rating` is a row's label, 1 or -1, its reward, or its advantage.
    """

    g: Builder
    beta: float
    chosen: Value
    rejected: Value | None
    scores: Value | None
    reference: Value | None = None
    rating: Value | None = None

    def gain(self) -> Value:
        """Return the scores minus their reference."""
        assert self.scores is not None
        return self.scores if self.reference is None else self.g.sub(self.scores, self.reference)

    def weighted(self, value: Value) -> Value:
        """`beta` times a value."""
        return self.g.mul(value, self.g.scalar(self.beta))

    def surprise(self, value: Value) -> Value:
        """-log sigmoid(value)."""
        return log1p_exp(self.g, plain(self.g.neg(value))).value


def margin(g: Builder, chosen: Value, rejected: Value | None) -> Value | None:
    """Return the margin of two answers (rows,)."""
    return None if rejected is None else g.sub(chosen, rejected)


def both(g: Builder, chosen: Value, rejected: Value | None) -> Value | None:
    """Return the log-probabilities of two answers (rows, 2)."""
    assert rejected is not None
    columns = (g.reshape(value, shape=(*value.shape, 1)) for value in (chosen, rejected))
    return g.concat(*columns, axis=1)


def _dpo(of: Terms) -> Value:
    return of.surprise(of.weighted(of.gain()))


def _ipo(of: Terms) -> Value:
    return of.g.square(of.g.sub(of.gain(), of.g.scalar(1 / (2 * of.beta))))


def _orpo(of: Terms) -> Value:
    g = of.g
    below = (g.minimum(value, g.scalar(NEAREST_TO_CERTAIN)) for value in (of.rejected, of.chosen))
    rests = (g.log1p(g.neg(g.exp(value))) for value in below)
    odds = g.add(of.gain(), g.sub(*rests))
    return g.sub(of.weighted(of.surprise(odds)), of.chosen)


def _kto(of: Terms) -> Value:
    g, gain = of.g, of.gain()
    rows = gain.shape[0]
    own, other = (
        g.reshape(g.slice(gain, start=(0, at), stop=(rows, at + 1), step=(1, 1)), shape=(rows,))
        for at in (0, 1)
    )
    drift = g.maximum(g.reduce_mean(g.stop_gradient(other), axes=(0,)), g.scalar(0.0))
    return g.sigmoid(g.neg(of.weighted(g.mul(of.rating, g.sub(own, drift)))))


def _weighted(of: Terms) -> Value:
    return of.g.neg(of.g.mul(of.rating, of.chosen))


def _grpo(of: Terms) -> Value:
    """A step per answer leaves the ratio of probabilities at 1, so no clipping is reached."""
    ratio = of.g.exp(of.g.sub(of.chosen, of.g.stop_gradient(of.chosen)))
    return of.g.neg(of.g.mul(of.rating, ratio))


def _distill(of: Terms) -> Value:
    return of.g.neg(of.chosen)


@dataclass(frozen=True)
class Loss:
    """A loss: its form of data, whether it adds up log-probabilities, and its reference.

    `answers` is the number of answers per row.
    """

    of: Callable[[Terms], Value]
    form: str = PAIRS
    answers: int = 2
    sums: bool = False
    refers: bool = True
    scores: Callable[[Builder, Value, Value | None], Value | None] = margin


LOSSES_OF: Mapping[str, Loss] = {
    "dpo": Loss(_dpo, sums=True),
    "ipo": Loss(_ipo),
    "orpo": Loss(_orpo, refers=False),
    "kto": Loss(_kto, RATED, sums=True, scores=both),
    "weighted": Loss(_weighted, RATED, answers=1, refers=False),
    "grpo": Loss(_grpo, DRAWN, answers=1, refers=False),
    "distill": Loss(_distill, TAUGHT, answers=1, refers=False),
}
