"""Agreement of two evaluations of the same schemes: an upper bound for any prediction.

Predictions are compared with validation accuracies, which are of few seeds and of some thousand
examples. Accuracies on the test part, of other examples, show how much of their order is noise.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pockengine.finetune.ranks import rank_correlation
from pockengine.studies.sparse.figures import pairs_of
from pockengine.studies.sparse.journal import Journal
from pockengine.studies.sparse.schemes import FULL


@dataclass(frozen=True)
class Agreement:
    """A pair's schemes except full: accuracies in validation at their best rates, and in test."""

    pair: str
    judged: tuple[float, ...]
    tested: tuple[float, ...]

    @property
    def rho(self) -> float | None:
        """Spearman's rank correlation of the two."""
        return rank_correlation(self.judged, self.tested)


def agreements_of(journal: Journal) -> list[Agreement]:
    """Return the agreement of every pair, of its last race's evaluation and its last test part."""
    judges = {key["pair"]: key.get("judged_by") for key, _ in journal.entries(kind="race")}
    found = []
    for pair in pairs_of(journal):
        finals = list(journal.entries(kind="trial", pair=pair, purpose="final"))
        test = finals[-1][0].get("judged_by") if finals else None
        judged = _best(journal, pair, "choice", judges.get(pair))
        tested = _best(journal, pair, "final", test)
        rules = [one for one in tested if one in judged]
        if len(rules) > 2:
            both = ((judged[one], tested[one]) for one in rules)
            first, second = zip(*both, strict=True)
            found.append(Agreement(pair, first, second))
    return found


def _best(journal: Journal, pair: str, purpose: str, judge: object) -> dict[str, float]:
    """Return each scheme's mean accuracy over the seeds, at its best rate."""
    runs: dict[tuple[str, float], list[float]] = defaultdict(list)
    for key, result in journal.entries(kind="trial", pair=pair, purpose=purpose):
        if key.get("judged_by") == judge and key["scheme"] != FULL:
            runs[key["rules"], key["rate"]].append(result["accuracy"])
    best: dict[str, float] = {}
    for (rules, _), accuracies in runs.items():
        best[rules] = max(best.get(rules, 0.0), fmean(accuracies))
    return best


def agreement_section(agreements: Sequence[Agreement]) -> str:
    """Return the section on how far the rankings of validation and test part agree."""
    known = [(one, one.rho) for one in agreements]
    values = [rho for _, rho in known if rho is not None]
    if not values:
        return ""
    cells = ", ".join(
        f"{one.pair} {rho:.2f} of {len(one.judged)}" for one, rho in known if rho is not None
    )
    return (
        "The judge and the test part do not agree wholly themselves: the rank correlation of their "
        "accuracies, over the schemes but full that both have judged, is "
        f"{fmean(values):.2f}, the mean of {len(values)} pairs ({cells} schemes)."
    )
