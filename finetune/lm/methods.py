"""Losses for fine-tuning a decoder.

    sft     cross entropy of the answers
    dpo     direct preference optimization (Rafailov et al., 2023; arXiv:2305.18290)
    ipo     identity preference optimization (Azar et al., 2023; arXiv:2310.12036)
    orpo    odds ratio preference optimization (Hong et al., 2024; arXiv:2403.07691)

Preferences compare two answers to one prompt. A row of tokens holds the prompt with the chosen
answer, then the prompt with the rejected one; positions restart between them, so neither sees the
other. `signs` marks their tokens. With c and r the log-probabilities of the two answers, and m = c
- r, which is m0 before training:

    dpo     -log sigmoid(beta (m - m0))             c and r are sums over tokens
    ipo     (m - m0 - 1 / (2 beta))^2               means over tokens
    orpo    -c - beta log sigmoid(odds(c) - odds(r))    means; odds(p) = p - log(1 - exp(p))
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pockengine.compiler.ir import F32, Builder, Graph, TensorType, Value
from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import FinetuneError
from pockengine.finetune.lm.packing import LABELS, LOGITS
from pockengine.frontends.emit.activation import log1p_exp
from pockengine.frontends.layout import plain

SFT = "sft"
SIGNS, REFERENCE, MARGIN, LOSSES = "signs", "reference", "margin", "losses"
"""Inputs: 1 at tokens of the chosen answer, -1 at tokens of the rejected one (rows, length); the
margin before training (rows,). Outputs: each pair's margin and loss (rows,)."""


@dataclass(frozen=True)
class Method:
    """A method by its name, with `beta`, the weight of its preference."""

    name: str = SFT
    beta: float = 0.1

    def __post_init__(self) -> None:
        if self.name != SFT and self.name not in _LOSSES:
            raise FinetuneError(f"unknown method {self.name!r}; known: {', '.join(METHODS)}")
        if not self.beta > 0:
            raise FinetuneError(f"beta is {self.beta:g}; give a number above 0")

    @property
    def compares(self) -> bool:
        """Whether it learns from pairs of answers."""
        return self.name != SFT

    @property
    def refers(self) -> bool:
        """Whether its loss refers to the model before training."""
        return self.name in _REFERRING

    @property
    def outputs(self) -> tuple[str, ...]:
        """Outputs of a step besides the loss; logits would mean decoding the head a second time."""
        return (MARGIN, LOSSES) if self.compares else ()


SUPERVISED = Method()
"""Supervised learning of texts."""


def set_loss(graph: Graph, method: Method) -> None:
    """Replace a decoder's own loss by a method's; its logits must be whole."""
    if not method.compares:
        return
    labels = next(value for value in graph.inputs if value.name == LABELS)
    g = Builder(graph)
    signs = g.input(SIGNS, TensorType(F32, labels.shape))
    answers = _Answers(g, _log_probabilities(g, graph.outputs[LOGITS], labels), signs)
    chosen, rejected = answers.of(1.0, method), answers.of(-1.0, method)
    margin = g.sub(chosen, rejected)
    graph.outputs[MARGIN] = margin
    gain = margin
    if method.refers:
        gain = g.sub(margin, g.input(REFERENCE, margin.type))
    losses = _LOSSES[method.name](_Terms(g, method.beta, chosen, rejected=rejected, gain=gain))
    graph.outputs[LOSSES] = losses
    graph.outputs[LOSS] = g.reduce_mean(losses, axes=(0,))


def _log_probabilities(g: Builder, logits: Value, labels: Value) -> Value:
    """Return the log-probability of each token except a row's first (rows, length - 1).

    At an ignored label it is that of token 0, whose sign is 0.
    """
    rows, length = labels.shape
    before = g.slice(
        logits, start=(0, 0, 0), stop=(rows, length - 1, logits.shape[2]), step=(1,) * 3
    )
    follows = g.slice(labels, start=(0, 1), stop=(rows, length), step=(1, 1))
    index = g.maximum(follows, g.scalar(0, labels.dtype))
    column = g.reshape(index, shape=(*index.shape, 1))
    taken = g.take_along(g.log_softmax(before), column, axis=2)
    return g.reshape(taken, shape=index.shape)


@dataclass(frozen=True)
class _Answers:
    """Log-probabilities (rows, length - 1) of the tokens of both answers, and their signs."""

    g: Builder
    tokens: Value
    signs: Value

    def of(self, sign: float, method: Method) -> Value:
        """Return an answer's log-probability (rows,): the sum of its tokens', or their mean."""
        g = self.g
        rows, length = self.signs.shape
        signs = g.slice(self.signs, start=(0, 1), stop=(rows, length), step=(1, 1))
        counts = g.maximum(g.mul(signs, g.scalar(sign)), g.scalar(0.0))
        total = g.reduce_sum(g.mul(self.tokens, counts), axes=(1,))
        if method.name == "dpo":
            return total
        return g.div(total, g.reduce_sum(counts, axes=(1,)))


@dataclass(frozen=True)
class _Terms:
    """Inputs of a loss: values of shape (rows,)."""

    g: Builder
    beta: float
    chosen: Value
    rejected: Value
    gain: Value

    def weighted(self, value: Value) -> Value:
        """`beta` times a value."""
        return self.g.mul(value, self.g.scalar(self.beta))

    def surprise(self, value: Value) -> Value:
        """-log sigmoid(value)."""
        return log1p_exp(self.g, plain(self.g.neg(value))).value


def _dpo(of: _Terms) -> Value:
    return of.surprise(of.weighted(of.gain))


def _ipo(of: _Terms) -> Value:
    return of.g.square(of.g.sub(of.gain, of.g.scalar(1 / (2 * of.beta))))


def _orpo(of: _Terms) -> Value:
    g = of.g
    rests = (g.log1p(g.neg(g.exp(value))) for value in (of.rejected, of.chosen))
    odds = g.add(of.gain, g.sub(*rests))
    return g.sub(of.weighted(of.surprise(odds)), of.chosen)


_LOSSES: Mapping[str, Callable[[_Terms], Value]] = {"dpo": _dpo, "ipo": _ipo, "orpo": _orpo}
_REFERRING = ("dpo", "ipo")
METHODS = (SFT, *_LOSSES)
