"""Agreement of two evaluations of the same schemes: an upper bound for predictions of either.

A prediction is held against the judge's accuracies. These are of few seeds and of some thousand
examples; the test part's, of other examples, say how much of their order is chance.
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
    """A pair's schemes but full: accuracies by the judge, at each one's best rate, and by test."""

    pair: str
    judged: tuple[float, ...]
    tested: tuple[float, ...]

    @property
    def rho(self) -> float | None:
        """Spearman's rank correlation of the two."""
        return rank_correlation(self.judged, self.tested)


def agreements_of(journal: Journal) -> list[Agreement]:
    """Return every pair's, of its last race's judge and its last test part."""
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
    """Return what each scheme's rules reach at their best rate, the mean of the seeds."""
    runs: dict[tuple[str, float], list[float]] = defaultdict(list)
    for key, result in journal.entries(kind="trial", pair=pair, purpose=purpose):
        if key.get("judged_by") == judge and key["scheme"] != FULL:
            runs[key["rules"], key["rate"]].append(result["accuracy"])
    best: dict[str, float] = {}
    for (rules, _), accuracies in runs.items():
        best[rules] = max(best.get(rules, 0.0), fmean(accuracies))
    return best


def agreement_section(agreements: Sequence[Agreement]) -> str:
    """Return how far the judge's ranking of schemes agrees with the test part's."""
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
