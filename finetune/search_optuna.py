"""Optuna's samplers over genomes: NSGA-II, and random draws as its control.

Both take whole genomes from the prior of search.py, NSGA-II for its first generation, and new genes
from it for mutations. Trials run in sequence, so a search is a function of its seed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from pockengine.finetune.cost import Cost
from pockengine.finetune.search_starts import Genome

POPULATION = 20
MUTATIONS = 2.0
"""Mean number of mutated genes per child."""

SWAPPED = 0.3
"""Share of a child's genes from its second parent."""

NEAR = 0.2
"""Costs below a bound by more than this fraction count as equal.

Otherwise most of a population would be cheap schemes of little gain. Of ten settings tried on three
synthetic tables, this one reached the largest gain in 500 evaluations.
"""

Space = dict[str, BaseDistribution]


class Prior(Protocol):
    """The distribution of genomes and genes."""

    sizes: tuple[int, ...]

    def draw(self) -> Genome:
        """Return a whole genome."""

    def mutated(self, place: int) -> int:
        """Return a new gene."""


class Point(Protocol):
    """Result of an evaluation."""

    @property
    def gain(self) -> float:
        """The value to maximize."""

    @property
    def cost(self) -> Cost:
        """The costs to minimize and bound."""


@dataclass(frozen=True)
class SearchProblem:
    """A search problem: this many evaluations, `starts` first, of genomes from a prior.

    `excess` returns the relative excess over each of `bounds` bounds.
    """

    prior: Prior
    starts: Sequence[Genome]
    evaluate: Callable[[Genome], Point]
    excess: Callable[[Cost], Mapping[str, float]]
    bounds: int
    evaluations: int
    seed: int


def evolve(problem: SearchProblem) -> None:
    """Search by NSGA-II; the first generation is the starts, then draws."""
    sampler = _Evolution(
        problem,
        population_size=POPULATION,
        mutation_prob=min(1.0, MUTATIONS / len(problem.prior.sizes)),
        swapping_prob=SWAPPED,
        seed=problem.seed,
    )
    _run(sampler, problem)


def draw(problem: SearchProblem) -> None:
    """Evaluate the starts, then draws."""
    _run(_Draws(problem, seed=problem.seed), problem)


class _FromPrior(BaseSampler):
    """A sampler with fixed genes from the first trial on, and genomes from a prior."""

    def __init__(self, problem: SearchProblem, **options: Any) -> None:
        super().__init__(**options)
        self._prior, self._first = problem.prior, _first(problem.prior, problem.starts)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Space:
        """Return all genes."""
        return _genes(self._prior)


class _Evolution(_FromPrior, NSGAIISampler):
    """NSGA-II whose first generation and mutations come from a prior."""

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Space
    ) -> dict[str, Any]:
        """Return a child, or in the first generation the next start."""
        return super().sample_relative(study, trial, search_space) or next(self._first)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> int:
        """Return a mutated gene."""
        return self._prior.mutated(int(param_name))


class _Draws(_FromPrior, RandomSampler):
    """Random search by a prior."""

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Space
    ) -> dict[str, Any]:
        """Return the next draw."""
        return next(self._first)


def _first(prior: Prior, starts: Sequence[Genome]) -> Iterator[dict[str, int]]:
    """Yield the starts, then draws, in Optuna's form."""
    for genome in starts:
        yield {str(place): gene for place, gene in enumerate(genome)}
    while True:
        yield {str(place): gene for place, gene in enumerate(prior.draw())}


def _genes(prior: Prior) -> Space:
    return {str(place): IntDistribution(0, size) for place, size in enumerate(prior.sizes)}


def _run(sampler: BaseSampler, problem: SearchProblem) -> None:
    """Maximize the gain and minimize the bounded costs; without bounds, memory and cycles."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it logs every study otherwise
    directions = ["maximize", *["minimize"] * (problem.bounds or 2)]
    study = optuna.create_study(directions=directions, sampler=sampler)
    genes = _genes(problem.prior)
    for _ in range(problem.evaluations):
        trial = study.ask(genes)
        point = problem.evaluate(tuple(trial.params[name] for name in genes))
        excess = problem.excess(point.cost)
        for name, value in excess.items():
            trial.set_constraint(name, value)
        near = [max(value, -NEAR) for value in excess.values()]
        costs = near or [float(point.cost.memory_bytes), point.cost.cycles]
        study.tell(trial, (point.gain, *costs))
