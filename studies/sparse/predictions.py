"""The searches and what became of their predictions, as the journal has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pockengine.finetune.contributions import ACCURACY
from pockengine.finetune.ranks import rank_correlation
from pockengine.studies.sparse.figures import pairs_of
from pockengine.studies.sparse.journal import Journal

SEARCH, DRAWN, RANDOM = "search", "nsga2", "random"
"""What `pockengine search` does; NSGA-II from draws, without greedy beginnings; draws alone."""


@dataclass(frozen=True)
class Search:
    """One search: the best predicted gain within the budget after each evaluation.

    `sampler` is SEARCH, DRAWN or RANDOM; `gains` a digest of the gains that it added up, `measure`
    what they are.
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
    """Return the searches of the same gains within the same budget, where all samplers ran."""
    groups: dict[tuple[str, str, int], list[Search]] = {}
    for search in searches:
        groups.setdefault((search.pair, search.gains, search.budget), []).append(search)
    wanted = {SEARCH, DRAWN, RANDOM}
    return [each for each in groups.values() if {one.sampler for one in each} == wanted]


def predictions_of(journal: Journal) -> list[Prediction]:
    """Return what was predicted of every pair's last race; schemes without a prediction are out."""
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
    """Return the mean of the pairs' rank correlations, weighted by their schemes; their count.

    Within each pair: the difficulty of pairs, and the units of their gains, do not matter.
    """
    known = [(one.rho, len(one.predicted)) for one in predictions]
    weights = [(rho, count) for rho, count in known if rho is not None]
    count = sum(count for _, count in weights)
    if not count:
        return None, 0
    return sum(rho * schemes for rho, schemes in weights) / count, count


def final_gain(searches: Sequence[Search], sampler: str) -> float | None:
    """Return a sampler's mean of the last best gains; None without a search."""
    gains = [search.curve[-1] for search in searches if search.sampler == sampler and search.curve]
    return fmean(gains) if gains else None
