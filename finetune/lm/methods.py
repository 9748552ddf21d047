"""Methods of fine-tuning a decoder, and their losses as a graph.

    sft         cross entropy of the answers
    dpo         direct preference optimization (Rafailov et al., 2023; arXiv:2305.18290)
    ipo         identity preference optimization (Azar et al., 2023; arXiv:2310.12036)
    orpo        odds ratio preference optimization (Hong et al., 2024; arXiv:2403.07691)
    kto         Kahneman-Tversky optimization (Ethayarajh et al., 2024; arXiv:2402.01306)
    weighted    answers weighted by their rewards (Peters and Schaal, 2007)
    grpo        group relative policy optimization (Shao et al., 2024; arXiv:2402.03300)
    distill     stored logits of a teacher (Hinton et al., 2015; arXiv:1503.02531)

A row of tokens holds one or two answers, each after the prompt; positions restart between them, so
neither sees the other. `signs` marks their tokens. losses.py has the formulas.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from pockengine.compiler.ir import F32, Builder, Graph, TensorType, Value
from pockengine.compiler.ir.graph import LOSS
from pockengine.compiler.ir.types import I64
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.errors import FinetuneError
from pockengine.finetune.lm.losses import DRAWN, LOSSES_OF, RATED, TAUGHT, Loss, Terms
from pockengine.finetune.lm.packing import LABELS, LOGITS, SIGNS
from pockengine.finetune.lm.teacher import ENTROPY, INDICES, PROBABILITIES, Teacher

SFT, TEXTS = "sft", "texts"
METHODS = (SFT, *LOSSES_OF)
PREFERENCES = tuple(name for name, loss in LOSSES_OF.items() if loss.answers == 2)
"""Methods that compare answers, weighted by `beta`."""
REFERENCE, RATING = "reference", "rating"
"""Inputs: the scores before training (rows, ...); labels, rewards or advantages (rows,)."""
SCORES, LOSSES = "scores", "losses"
"""Outputs: each row's scores (rows, ...), compared with the reference, and its loss (rows,)."""


@dataclass(frozen=True)
class Drawing:
    """GRPO's sampling: `group` answers to each prompt, of at most `tokens` tokens.

    `reward` names the reward function, "module:function".
    """

    reward: str
    group: int = 4
    tokens: int = 48

    def __post_init__(self) -> None:
        if self.group < 2:
            raise FinetuneError(
                f"--group is {self.group}; give at least 2: answers to a prompt are compared"
            )
        if self.tokens < 1:
            raise FinetuneError("--answer-tokens is 0; give the maximum length of drawn answers")


@dataclass(frozen=True)
class Method:
    """A method by its name.

    `beta` is the weight of the preference, `teacher` the file of logits, and `drawing` the sampling
    of answers.
    """

    name: str = SFT
    beta: float = 0.1
    teacher: Path | None = None
    drawing: Drawing | None = None

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise FinetuneError(f"unknown method {self.name!r}; known: {', '.join(METHODS)}")
        if not 0 < self.beta < math.inf:
            raise FinetuneError(f"beta is {self.beta:g}; give a number above 0")
        if (self.teacher is None) == (self.form == TAUGHT):
            verb = "needs" if self.teacher is None else "takes no"
            raise FinetuneError(
                f"--method {self.name} {verb} --teacher: only distill reads a teacher's logits"
            )
        if (self.drawing is None) == (self.form == DRAWN):
            verb = "needs" if self.drawing is None else "takes no"
            raise FinetuneError(
                f"--method {self.name} {verb} --reward: only grpo rewards answers by a function"
            )

    @property
    def loss(self) -> Loss | None:
        """Its loss; None for the model's own."""
        return LOSSES_OF.get(self.name)

    @property
    def form(self) -> str:
        """The form of its data: TEXTS, or one of losses.py."""
        return TEXTS if self.loss is None else self.loss.form

    @property
    def refers(self) -> bool:
        """Whether its loss compares with the model before training."""
        return self.loss is not None and self.loss.refers

    @property
    def outputs(self) -> tuple[str, ...]:
        """Outputs of a step besides the loss. Logits would compute the head a second time."""
        if self.loss is None:
            return ()
        return (SCORES, LOSSES) if self.loss.answers == 2 else (LOSSES,)


SUPERVISED = Method()
"""Supervised learning of texts."""


def set_loss(graph: Graph, method: Method) -> None:
    """Replace a decoder's own loss by a method's."""
    loss = method.loss
    if loss is None:
        return
    labels = next(value for value in graph.inputs if value.name == LABELS)
    g = Builder(graph)
    signs = g.input(SIGNS, TensorType(F32, labels.shape))
    logits = graph.outputs[LOGITS]
    if method.teacher is None:
        tokens = _log_probabilities(g, logits, labels)
    else:
        tokens = _agreement(g, logits, Teacher(method.teacher))
    answers = _Answers(g, tokens, signs)
    chosen = answers.of(1.0, loss.sums)
    rejected = answers.of(-1.0, loss.sums) if loss.answers == 2 else None
    scores = loss.scores(g, chosen, rejected)
    if scores is not None:
        graph.outputs[SCORES] = scores
    reference = g.input(REFERENCE, scores.type) if loss.refers and scores is not None else None
    rating = g.input(RATING, chosen.type) if loss.form in (RATED, DRAWN) else None
    terms = Terms(
        g,
        method.beta,
        chosen,
        rejected=rejected,
        scores=scores,
        reference=reference,
        rating=rating,
    )
    losses = loss.of(terms)
    graph.outputs[LOSSES] = losses
    graph.outputs[LOSS] = g.reduce_mean(losses, axes=(0,))
    DeadCode().run(graph)  # the model's own loss would be a second reader of its logits


def _log_probabilities(g: Builder, logits: Value, labels: Value) -> Value:
    """Return the log-probability of the token after each (rows, length).

    At an ignored label, and after the last token, it is that of token 0, whose sign is 0.
    """
    index = g.maximum(_following(g, labels), g.scalar(0, labels.dtype))
    column = g.reshape(index, shape=(*index.shape, 1))
    taken = g.take_along(g.log_softmax(logits), column, axis=2)
    return g.reshape(taken, shape=index.shape)


def _agreement(g: Builder, logits: Value, teacher: Teacher) -> Value:
    """Return sum p (log q - log p) of each token's prediction (rows, length)."""
    teacher.check(logits.shape[2])
    types = TensorType(F32, (*logits.shape[:2], teacher.width))
    probabilities = g.input(PROBABILITIES, types)
    entropy = g.input(ENTROPY, TensorType(F32, logits.shape[:2]))
    log_q = g.log_softmax(logits)
    if teacher.partial:
        log_q = g.take_along(log_q, g.input(INDICES, TensorType(I64, types.shape)), axis=2)
    return g.sub(g.reduce_sum(g.mul(probabilities, log_q), axes=(2,)), entropy)


def _following(g: Builder, values: Value) -> Value:
    """Return (rows, length) values moved one token to the left, with 0 at the end."""
    rows, length = values.shape
    after = g.slice(values, start=(0, 1), stop=(rows, length), step=(1, 1))
    return g.pad(after, low=(0, 0), high=(0, 1), value=0)


@dataclass(frozen=True)
class _Answers:
    """Log-probabilities (rows, length) of the tokens of both answers, and their signs."""

    g: Builder
    tokens: Value
    signs: Value

    def of(self, sign: float, sums: bool) -> Value:
        """Return an answer's log-probability (rows,): the sum of its tokens', or their mean."""
        g = self.g
        signs = _following(g, self.signs)
        counts = g.maximum(g.mul(signs, g.scalar(sign)), g.scalar(0.0))
        total = g.reduce_sum(g.mul(self.tokens, counts), axes=(1,))
        return total if sums else g.div(total, g.reduce_sum(counts, axes=(1,)))
