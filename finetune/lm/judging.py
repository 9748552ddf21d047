"""Scores of a decoder: loss and perplexity of texts, ranking of pairs, loss of rated answers, and
rewards of sampled ones.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pockengine.backends.session import Session
from pockengine.finetune.judges import perplexity_of
from pockengine.finetune.lm.methods import LOSSES, SCORES
from pockengine.finetune.lm.packing import LABELS, SIGNS, Packed
from pockengine.finetune.verdict import mean_loss


@dataclass(frozen=True)
class TextScore:
    """Mean loss per token, over `tokens` of them."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """Perplexity: the exponential of the loss."""
        return perplexity_of(self.loss)

    def facts(self) -> dict[str, Any]:
        """Return it as JSON facts."""
        return {**asdict(self), "perplexity": self.perplexity}

    def __str__(self) -> str:
        return (
            f"held-out loss {self.loss:.4f}, perplexity {self.perplexity:.4g} "
            f"({self.tokens:,} tokens)"
        )


@dataclass(frozen=True)
class PairScore:
    """Mean loss of `pairs`, and the share whose chosen answer has the higher log-probability.

    For methods that average, both are means over tokens.
    """

    loss: float
    chosen: float
    pairs: int

    def facts(self) -> dict[str, Any]:
        """Return it as JSON facts."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"held-out loss {self.loss:.4f}, the chosen answer more likely in {self.chosen:.1%} of "
            f"{self.pairs:,} pairs"
        )


@dataclass(frozen=True)
class RatedScore:
    """Mean loss of `answers` with ratings."""

    loss: float
    answers: int

    def facts(self) -> dict[str, Any]:
        """Return it as JSON facts."""
        return {"loss": self.loss, "rated": self.answers}

    def __str__(self) -> str:
        return f"held-out loss {self.loss:.4f} ({self.answers:,} answers)"


@dataclass(frozen=True)
class RewardScore:
    """Mean reward of the likeliest answers to `prompts`."""

    reward: float
    prompts: int

    def facts(self) -> dict[str, Any]:
        """Return it as JSON facts."""
        return asdict(self)

    def __str__(self) -> str:
        return f"held-out reward {self.reward:.4g} ({self.prompts:,} prompts)"


Score = TextScore | PairScore | RatedScore | RewardScore


def score_of(facts: Mapping[str, Any]) -> Score | None:
    """Return the score from `facts`; None if they have none."""
    if "pairs" in facts:
        return PairScore(facts["loss"], facts["chosen"], facts["pairs"])
    if "reward" in facts:
        return RewardScore(facts["reward"], facts["prompts"])
    if "rated" in facts:
        return RatedScore(facts["loss"], facts["rated"])
    return TextScore(facts["loss"], facts["tokens"]) if "loss" in facts else None


def judge(session: Session, packed: Packed, batch: int) -> Score:
    """Evaluate all rows with the entry `evaluate`."""
    if SIGNS not in packed.arrays:
        return TextScore(*mean_loss(session, packed.arrays, LABELS, batch))
    losses = of_rows(session, packed, batch, LOSSES)
    scores = session.artifact.entries["evaluate"].outputs.get(SCORES)
    if scores is None or scores.rank > 1:  # not margins of pairs
        return RatedScore(float(losses.mean()), packed.rows)
    margins = of_rows(session, packed, batch, SCORES)
    return PairScore(float(losses.mean()), float((margins > 0).mean()), packed.rows)


def of_rows(session: Session, packed: Packed, batch: int, output: str) -> np.ndarray:
    """Return an output (rows, ...) of the entry `evaluate`; the last batch is padded with rows."""
    found, read = [], session.artifact.entries["evaluate"].inputs
    for at in range(0, packed.rows, batch):
        places = np.arange(at, at + batch) % packed.rows
        inputs = {name: array[places] for name, array in packed.arrays.items() if name in read}
        found.append(session.evaluate(inputs)[output])
    return np.concatenate(found)[: packed.rows]
