"""The journal's searches, and the accuracy of their predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pockengine.finetune.contributions import ACCURACY
from pockengine.finetune.ranks import rank_correlation
from pockengine.studies.sparse.figures import pairs_of
from pockengine.studies.sparse.journal import Journal

SEARCH, DRAWN, RANDOM = "search", "nsga2", "random"
"""The method of `pockengine search`; NSGA-II from draws, without greedy orders; draws only."""


@dataclass(frozen=True)
class Search:
    """One search: the best predicted gain within the budget after each evaluation.

    `sampler` is SEARCH, DRAWN or RANDOM; `gains` is a digest of the summed gains, `measure` their
    measure.
    """

    pair: str
    gains: str
    measure: str
    sampler: str
    seed: int
    budget: int
    curve: tuple[float, ...]


@dataclass(frozen=True)
class Prediction:
    """A pair's schemes in a race: predicted gains over the head alone, accuracies on validation."""

    pair: str
    predicted: tuple[float, ...]
    validated: tuple[float, ...]

    @property
    def rho(self) -> float | None:
        """Spearman's rank correlation of the two."""
        return rank_correlation(self.predicted, self.validated)


def searches_of(journal: Journal) -> list[Search]:
    """Return all searches, in the plan's order of pairs."""
    return [
        Search(
            pair,
            key["gains"],
            result.get("measure", ACCURACY),
            key["sampler"],
            key["seed"],
            key["budget"],
            tuple(result["curve"]),
        )
        for pair in pairs_of(journal)
        for key, result in journal.entries(kind="search", pair=pair)
    ]


def compared(searches: Sequence[Search]) -> list[list[Search]]:
    """Return the searches with the same gains and budget for which all samplers ran."""
    groups: dict[tuple[str, str, int], list[Search]] = {}
    for search in searches:
        groups.setdefault((search.pair, search.gains, search.budget), []).append(search)
    samplers = {SEARCH, DRAWN, RANDOM}
    return [each for each in groups.values() if {one.sampler for one in each} == samplers]


def predictions_of(journal: Journal) -> list[Prediction]:
    """Return the predictions of every pair's last race, without unpredicted schemes."""
    predictions = {}
    for key, result in journal.entries(kind="race"):
        known = [
            (predicted, fmean(accuracies))
            for predicted, accuracies in zip(result["predicted"], result["accuracies"], strict=True)
            if predicted is not None
        ]
        if known:
            first, second = zip(*known, strict=True)
            predictions[key["pair"]] = Prediction(key["pair"], first, second)
    return [predictions[pair] for pair in pairs_of(journal) if pair in predictions]


def pooled(predictions: Sequence[Prediction]) -> tuple[float | None, int]:
    """Return the pairs' mean rank correlation, weighted by schemes, and the number of schemes.

    Correlations are within pairs: the pairs' difficulty and the units of gains do not matter.
    """
    known = [(one.rho, len(one.predicted)) for one in predictions]
    weights = [(rho, count) for rho, count in known if rho is not None]
    count = sum(count for _, count in weights)
    if not count:
        return None, 0
    return sum(rho * schemes for rho, schemes in weights) / count, count


def final_gain(searches: Sequence[Search], sampler: str) -> float | None:
    """Return the mean of a sampler's final gains; None without a search."""
    gains = [search.curve[-1] for search in searches if search.sampler == sampler and search.curve]
    return fmean(gains) if gains else None
