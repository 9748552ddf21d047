"""Search a scheme: the most predicted gain that fits a budget of memory and time.

The gain of a scheme is predicted as the sum of the gains that its items had alone, on top of the
head (contributions.py, shrinkage.py); its cost is that of the compiled program (cost.py). Optuna's
NSGA-II looks for the front of gain, memory and cycles; random search, the control, draws from the
same prior.

A draw chooses the number of trained weights, then the weights, then the share of each. With
independent genes most weights would always train, and no draw would fit a tight budget. NSGA-II
starts from the same draws, so both searches start alike; a `warm` search also starts from greedy
orders cut at the budget (search_starts.py). Every requested scheme counts as an evaluation,
including repeated ones.

With a budget NSGA-II spends its population near the bounds; the front covers all evaluated schemes.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

from pockengine.compiler.ir import Graph
from pockengine.compiler.sparse import Scheme
from pockengine.errors import FinetuneError
from pockengine.extras import pip_command
from pockengine.finetune.contributions import Contributions, Item
from pockengine.finetune.cost import Cost
from pockengine.finetune.search_starts import Genome, longest_prefixes
from pockengine.finetune.shrinkage import shrunk
from pockengine.finetune.space import SearchSpace, scheme_of

SAMPLERS = ("nsga2", "random")
EVALUATIONS = 500

Progress = Callable[[int, float], None]


class Costs(Protocol):
    """The part of `CostModel` that the search uses."""

    graph: Graph

    def cost(self, scheme: Scheme) -> Cost:
        """Return the cost of a scheme."""


@dataclass(frozen=True)
class Budget:
    """Upper bounds; None means unbounded.

    `memory_bytes` bounds arena beyond inference plus optimizer states, `cycles` the modelled cycles
    on all cores, `work` those on one.
    """

    memory_bytes: int | None = None
    cycles: float | None = None
    work: float | None = None

    def __str__(self) -> str:
        bounds = [
            (self.memory_bytes, 1, ",.0f", "bytes beyond inference"),
            (self.cycles, 1e6, ",.2f", "M modelled cycles"),
            (self.work, 1e6, ",.2f", "M modelled cycles on one core"),
        ]
        texts = [f"{x / unit:{form}} {of}" for x, unit, form, of in bounds if x is not None]
        return ", ".join(texts)

    def excess(self, cost: Cost) -> dict[str, float]:
        """Return each bound's relative excess: 0 or less if it is met."""
        pairs = {
            "memory": (cost.memory_bytes, self.memory_bytes),
            "cycles": (cost.cycles, self.cycles),
            "work": (cost.work, self.work),
        }
        return {
            name: value / bound - 1 if bound else float(value)
            for name, (value, bound) in pairs.items()
            if bound is not None
        }

    def allows(self, cost: Cost) -> bool:
        """Whether a cost is within every bound."""
        return all(excess <= 0 for excess in self.excess(cost).values())


@dataclass(frozen=True)
class Point:
    """A scheme by its items, its predicted gain in accuracy, and its cost."""

    items: tuple[Item, ...]
    gain: float
    cost: Cost


@dataclass(frozen=True)
class Front:
    """Result of a search: the non-dominated points within the budget.

    `points` are in order of descending gain; `curve` is the best gain within the budget after each
    evaluation, 0 before the first one; `distinct` is the number of different schemes evaluated.
    """

    points: tuple[Point, ...]
    curve: tuple[float, ...]
    distinct: int

    @property
    def best(self) -> Point:
        """The point with the largest predicted gain."""
        return self.points[0]


def predicted_gain(contributions: Contributions, items: Sequence[Item]) -> float:
    """Sum the gains that the items had when trained alone."""
    return sum((contributions.gains[item].mean for item in items), 0.0)


def worth_choosing(space: SearchSpace, contributions: Contributions) -> SearchSpace:
    """Drop items that can only harm a scheme.

    These are items without a gain, and items that gain no more than a smaller option of the same
    weight. FinetuneError names an unmeasured item of the space.
    """

    def useful(options: Sequence[Item]) -> tuple[Item, ...]:
        chosen: list[Item] = []
        for item in options:
            gain = contributions.gains.get(item)
            if gain is None:
                raise FinetuneError(
                    f"the contributions hold no gain of {item}; measure it (pockengine sensitivity)"
                )
            if gain.mean > max((contributions.gains[each].mean for each in chosen), default=0.0):
                chosen.append(item)
        return tuple(chosen)

    weights = (useful(options) for options in space.weights)
    return SearchSpace(useful(space.biases), tuple(options for options in weights if options))


@dataclass(frozen=True)
class SearchEffort:
    """Number of evaluations, seed, sampler, and whether to start from greedy orders."""

    evaluations: int = EVALUATIONS
    seed: int = 0
    sampler: str = "nsga2"
    warm: bool = True


def search(
    costs: Costs,
    space: SearchSpace,
    contributions: Contributions,
    budget: Budget,
    effort: SearchEffort = SearchEffort(),
    progress: Progress | None = None,
) -> Front:
    """Return the front within the budget; the same arguments give the same front.

    `progress` is called after each evaluation with the number so far and the best gain.
    FinetuneError, with the cost of the cheapest scheme, if none is within the budget.
    """
    contributions = shrunk(contributions)
    space = worth_choosing(space, contributions)
    evaluate = _Evaluations(costs, space, contributions, budget=budget, progress=progress)
    head = evaluate.point(())
    _check_possible(head.cost, budget)

    def fits(genome: Genome) -> bool:
        return len(evaluate.curve) < effort.evaluations and budget.allows(evaluate(genome).cost)

    prior = Prior([len(options) for options in (space.biases, *space.weights)], Random(effort.seed))
    if space.items:
        begun = longest_prefixes(space, contributions, costs.graph, fits) if effort.warm else ()
        starts = list(dict.fromkeys(begun))
        bounds, left = len(budget.excess(head.cost)), effort.evaluations - len(evaluate.curve)
        _explore(effort.sampler, prior, starts, evaluate, budget.excess, bounds, left, effort.seed)
    points = tuple(_allowed_front(evaluate.found.values(), budget))
    return Front(points, tuple(evaluate.curve), len(evaluate.found))


@dataclass
class _Evaluations:
    """Evaluations so far: each scheme once, and the best gain within the budget after each."""

    costs: Costs
    space: SearchSpace
    contributions: Contributions
    budget: Budget
    progress: Progress | None
    found: dict[tuple[Item, ...], Point] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)

    def __call__(self, genome: Genome) -> Point:
        """Evaluate a genome."""
        point = self.point(chosen(self.space, genome))
        best = self.curve[-1] if self.curve else 0.0
        self.curve.append(max(best, point.gain) if self.budget.allows(point.cost) else best)
        if self.progress is not None:
            self.progress(len(self.curve), self.curve[-1])
        return point

    def point(self, items: tuple[Item, ...]) -> Point:
        """Return the point of these items; this does not count as an evaluation."""
        if items not in self.found:
            cost = self.costs.cost(scheme_of(self.costs.graph, items))
            self.found[items] = Point(items, predicted_gain(self.contributions, items), cost)
        return self.found[items]


def _explore(sampler: str, *problem: Any) -> None:
    try:
        from pockengine.finetune import search_optuna
    except ImportError as error:
        raise FinetuneError(
            f"a search needs the package optuna ({pip_command('search')}): {error}"
        ) from error
    explorers = {"nsga2": search_optuna.evolve, "random": search_optuna.draw}
    if sampler not in explorers:
        raise FinetuneError(f"unknown sampler {sampler!r}; use {' or '.join(SAMPLERS)}")
    explorers[sampler](search_optuna.SearchProblem(*problem))


def _check_possible(head: Cost, budget: Budget) -> None:
    """Raise FinetuneError for limits that the head alone exceeds: cycles, and optimizer states.

    Its arena may be larger than that of a scheme that trains more: packing is greedy.
    """
    least = replace(head, extra_bytes=0)
    if not budget.allows(least):
        raise FinetuneError(_too_little("the cheapest, the head alone,", head, budget))


def _allowed_front(points: Collection[Point], budget: Budget) -> list[Point]:
    allowed = [point for point in points if budget.allows(point.cost)]
    if not allowed:
        nearest = min(points, key=lambda point: max(budget.excess(point.cost).values()))
        what = f"the nearest of those tried ({', '.join(map(str, nearest.items)) or 'the head'})"
        raise FinetuneError(_too_little(what, nearest.cost, budget))
    return non_dominated(allowed)


def _too_little(what: str, cost: Cost, budget: Budget) -> str:
    return (
        f"no scheme fits the budget: {what} takes {cost.memory_bytes:,} bytes beyond inference and "
        f"{cost.cycles / 1e6:,.2f} M modelled cycles ({cost.work / 1e6:,.2f} M on one core); the "
        f"budget is {budget}; allow more"
    )


def chosen(space: SearchSpace, genome: Genome) -> tuple[Item, ...]:
    """Return the items that a genome encodes, sorted."""
    options = (space.biases, *space.weights)
    pairs = zip(options, genome, strict=True)
    return tuple(sorted(each[gene - 1] for each, gene in pairs if gene))


class Prior:
    """Draws genomes, each gene from 0 to its size.

    The number of trained weights is drawn on a log scale, then the weights, then the share of each.
    """

    def __init__(self, sizes: Sequence[int], random: Random) -> None:
        self.sizes, self._random = tuple(sizes), random

    def draw(self) -> Genome:
        """Return a whole genome."""
        weights = range(1, len(self.sizes))
        count = round((len(weights) + 1) ** self._random.random()) - 1
        genome = [self._random.randint(0, self.sizes[0]), *(0 for _ in weights)]
        for place in self._random.sample(weights, count):
            genome[place] = self._random.randint(1, self.sizes[place])
        return tuple(genome)

    def mutated(self, place: int) -> int:
        """Return a new gene; at least half of the draws are 0."""
        if self._random.random() < 0.5:
            return 0
        return self._random.randint(0, self.sizes[place])


def non_dominated(points: Sequence[Point]) -> list[Point]:
    """Return the non-dominated points, by descending gain.

    A point dominates another if it is no worse in gain, memory and cycles, and better in at least
    one of them.
    """

    def key(point: Point) -> tuple[float, float, float]:
        return -point.gain, point.cost.memory_bytes, point.cost.cycles

    front: dict[tuple[float, float, float], Point] = {}
    for point in sorted(points, key=key):
        mine = key(point)
        if not any(all(a <= b for a, b in zip(other, mine, strict=True)) for other in front):
            front[mine] = point
    return list(front.values())
