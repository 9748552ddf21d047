"""The gains that a search sums: by the first measure of a table that distinguishes items.

The goal is a better score, but accuracy on a few hundred examples is mostly noise. Training loss is
measured far more exactly; its decrease shows how well an item can fit. On MCUNet and Fashion-MNIST,
sums of it ranked 16 schemes by accuracy with a correlation of 0.86, sums of accuracy gains with
-0.60 (studies/results/sparse.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pockengine.finetune.contributions import LOSS, Contributions, Key, contributions_of
from pockengine.finetune.judges import ACCURACY, JUDGES, Judge
from pockengine.finetune.shrinkage import reliability
from pockengine.finetune.signal import ENOUGH
from pockengine.finetune.trial import TrialOutcome

UNITS = {judge.name: judge.unit for judge in JUDGES.values()} | {LOSS: "hundredths of loss"}
"""Unit of a hundredth of a gain."""


@dataclass(frozen=True)
class Signal:
    """The gains to search by, None if no measure has signal; and the reliability of each.

    A reliability is None if the noise is unknown, as with a single seed: such gains are used
    unchanged.
    """

    contributions: Contributions | None
    reliabilities: Mapping[str, float | None]

    def __str__(self) -> str:
        clauses = ", ".join(
            f"{measure} {'unknown' if value is None else f'{value:.0%}'}"
            for measure, value in self.reliabilities.items()
        )
        if self.contributions is None:
            return f"gains are chance (reliability: {clauses}; at least {ENOUGH:.0%} is needed)"
        return f"gains by {self.contributions.measure} (reliability: {clauses})"


def signal_of(trials: Mapping[Key, TrialOutcome], judge: Judge = ACCURACY) -> Signal:
    """Choose the measure of a table's gains; FinetuneError if the baseline is missing.

    `judge` is the judge of the trials' scores.
    """
    reliabilities: dict[str, float | None] = {}
    for measure in (judge.name, LOSS):
        contributions = contributions_of(trials, measure)
        found = reliabilities[measure] = reliability(contributions)
        if found is None or found >= ENOUGH:
            return Signal(contributions, reliabilities)
    return Signal(None, reliabilities)
