"""The loss of texts over the tokens that count, and its perplexity."""

from dataclasses import dataclass

from pockengine.backends.session import Session
from pockengine.finetune.judges import perplexity_of
from pockengine.finetune.lm.packing import LABELS, Packed
from pockengine.finetune.verdict import mean_loss


@dataclass(frozen=True)
class Judgement:
    """The mean loss of a token, over `tokens` of them."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """Among how many tokens the model is as uncertain as one that guesses."""
        return perplexity_of(self.loss)


def judge(session: Session, packed: Packed, batch: int) -> Judgement:
    """Judge all rows by the entry `evaluate`."""
    return Judgement(*mean_loss(session, packed.arrays, LABELS, batch))
