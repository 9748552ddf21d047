"""The searches and what became of their predictions, as the journal has them."""

import statistics
from dataclasses import dataclass

from pockengine.finetune.ranks import rank_correlation
from pockengine.studies.sparse.figures import pairs_of
from pockengine.studies.sparse.journal import Journal

SEARCH, DRAWN, RANDOM = "search", "nsga2", "random"
"""What `pockengine search` does; NSGA-II from draws, without greedy beginnings; draws alone."""


@dataclass(frozen=True)
class Search:
    """One search: the best predicted gain within the budget after each evaluation.

    `sampler` is SEARCH, DRAWN or RANDOM.
    """

    pair: str
    sampler: str
    seed: int
    budget: int
    curve: tuple[float, ...]


@dataclass(frozen=True)
class Prediction:
    """A pair's finalists: predicted gains over the head alone, accuracies on validation.

    `baseline` is what the head alone reached in the shorter runs of the sensitivity analysis.
    """

    pair: str
    predicted: tuple[float, ...]
    validated: tuple[float, ...]
    baseline: float

    @property
    def rho(self) -> float | None:
        """Spearman's rank correlation of the two."""
        return rank_correlation(self.predicted, self.validated)


def searches_of(journal: Journal) -> list[Search]:
    """Return all searches, in the plan's order of pairs."""
    return [
        Search(pair, key["sampler"], key["seed"], key["budget"], tuple(result["curve"]))
        for pair in pairs_of(journal)
        for key, result in journal.entries(kind="search", pair=pair)
    ]


def predictions_of(journal: Journal) -> list[Prediction]:
    """Return every pair's finalists."""
    predictions = {}
    for key, result in journal.entries(kind="finalists"):
        predictions[key["pair"]] = Prediction(
            key["pair"],
            tuple(result["predicted"]),
            tuple(result["validated"]),
            result["baseline"],
        )
    return [predictions[pair] for pair in pairs_of(journal) if pair in predictions]


def pooled(predictions: list[Prediction]) -> tuple[float | None, int]:
    """Return the rank correlation over all pairs' finalists, each pair about its mean; their count.

    Without taking each pair's mean off, the pairs' difficulty would be what correlates.
    """
    first: list[float] = []
    second: list[float] = []
    for one in predictions:
        first += [gain - statistics.fmean(one.predicted) for gain in one.predicted]
        second += [each - statistics.fmean(one.validated) for each in one.validated]
    return rank_correlation(first, second), len(first)


def final_gain(searches: list[Search], sampler: str) -> float | None:
    """Return a sampler's mean of the last best gains; None without a search."""
    gains = [search.curve[-1] for search in searches if search.sampler == sampler and search.curve]
    return statistics.fmean(gains) if gains else None
