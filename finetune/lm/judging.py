"""The loss of texts over the counted tokens, and its perplexity."""

from dataclasses import dataclass

from pockengine.backends.session import Session
from pockengine.finetune.judges import perplexity_of
from pockengine.finetune.lm.packing import LABELS, Packed
from pockengine.finetune.verdict import mean_loss


@dataclass(frozen=True)
class Judgement:
    """Mean loss per token, over `tokens` of them."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """Perplexity: the exponential of the loss."""
        return perplexity_of(self.loss)


def judge(session: Session, packed: Packed, batch: int) -> Judgement:
    """Evaluate all rows with the entry `evaluate`."""
    return Judgement(*mean_loss(session, packed.arrays, LABELS, batch))
