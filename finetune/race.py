"""Find the best of a few schemes by real trainings: successive halving over seeds.

First every scheme trains in full with the first seed, at each of the same learning rates; the best
run sets its rate and its first score. The better half continues with twice as many seeds, until the
last ones have all of them (Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and
hyperparameter optimization"). Seeds, training and evaluation data are the same for all, so
differences are due to the schemes. A preset always reaches the final round, so the winner is never
worse on the evaluation data.

Trainings are never shortened to save time: after one epoch of four the ranking of schemes says
little about the final one, and after two the ranking of rates misleads (studies/results/sparse.md).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from statistics import fmean, stdev

from pockengine.compiler.sparse import Scheme
from pockengine.errors import FinetuneError
from pockengine.finetune.rates import best_rate
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.trial import TrialOutcome

Runs = Sequence[tuple[Scheme, Recipe]]
Run = Callable[[Runs], Sequence[TrialOutcome]]
"""Trains each scheme by its recipe and evaluates it on the validation part."""


@dataclass(frozen=True)
class Standing:
    """A scheme in a race: the recipe at its best rate, and a score per seed."""

    scheme: Scheme
    recipe: Recipe
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean score."""
        return fmean(self.scores)

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds; 0 for one seed, or if a training diverged."""
        if not isfinite(self.mean):
            return 0.0
        return stdev(self.scores) if len(self.scores) > 1 else 0.0


def race(
    schemes: Sequence[Scheme],
    presets: Collection[Scheme],
    recipe: Recipe,
    rates: Sequence[float],
    seeds: Sequence[int],
    run: Run,
) -> list[Standing]:
    """Return all schemes, sorted by number of seeds, then by score.

    The best of `presets` runs to the end. A scheme that diverges at every rate is dropped.
    FinetuneError if all do.
    """
    first = _tuned(schemes, replace(recipe, seed=seeds[0]), rates, run)
    recipes = {scheme: recipe for scheme, (recipe, _) in first.items()}
    results = {scheme: [score] for scheme, (_, score) in first.items()}
    running = _better_half(results, list(recipes), presets)
    for begin, end in _rounds(len(seeds)):
        tries = [
            (scheme, replace(recipes[scheme], seed=seed))
            for scheme in running
            for seed in seeds[begin:end]
        ]
        for (scheme, _), outcome in zip(tries, run(tries), strict=True):
            results[scheme].append(outcome.score)
        running = _better_half(results, running, presets)
    standings = [Standing(scheme, recipes[scheme], tuple(results[scheme])) for scheme in results]
    return sorted(standings, key=lambda one: (-len(one.scores), -one.mean))


def _better_half(
    results: Mapping[Scheme, Sequence[float]],
    running: Sequence[Scheme],
    presets: Collection[Scheme],
) -> list[Scheme]:
    """Return the better half, best first, always including the best preset."""
    order = sorted(running, key=lambda scheme: -fmean(results[scheme]))
    best_preset = [scheme for scheme in order if scheme in presets][:1]
    half = order[: max(2, (len(order) + 1) // 2)]
    return [scheme for scheme in order if scheme in half or scheme in best_preset]


def _rounds(seeds: int) -> Iterator[tuple[int, int]]:
    """Yield the seeds of each round after the first: the second, the next two, the next four."""
    begin, end = 1, 2
    while begin < seeds:
        yield begin, min(end, seeds)
        begin, end = end, 2 * end


def _tuned(
    schemes: Sequence[Scheme], recipe: Recipe, rates: Sequence[float], run: Run
) -> dict[Scheme, tuple[Recipe, float]]:
    """Return recipes at their best rates, and scores; schemes that always diverge are dropped."""
    tries = [
        (scheme, replace(recipe, rate=rate))
        for scheme in dict.fromkeys(schemes)
        for rate in dict.fromkeys(rates)
    ]
    outcomes: dict[Scheme, dict[float, TrialOutcome]] = {}
    for (scheme, tried), outcome in zip(tries, run(tries), strict=True):
        outcomes.setdefault(scheme, {})[tried.rate] = outcome
    best = {scheme: best_rate(found) for scheme, found in outcomes.items()}
    if all(rate is None for rate in best.values()):
        names = ", ".join(scheme.name for scheme in best)
        listed = ", ".join(f"{rate:g}" for rate in rates)
        raise FinetuneError(f"{names}: each diverges at every rate ({listed}); give smaller ones")
    return {
        scheme: (replace(recipe, rate=rate), outcomes[scheme][rate].score)
        for scheme, rate in best.items()
        if rate is not None
    }
