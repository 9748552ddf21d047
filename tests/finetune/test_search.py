"""The search finds the best scheme, keeps the budget, is deterministic, and beats random search."""

import itertools
from dataclasses import replace
from random import Random
from statistics import fmean

import numpy as np
import pytest

from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.sparse import Scheme
from pockengine.devices import load_device
from pockengine.errors import FinetuneError
from pockengine.finetune.contributions import Contributions, Gain, Item
from pockengine.finetune.cost import Cost, CostModel
from pockengine.finetune.search import (
    Budget,
    Prior,
    SearchEffort,
    chosen,
    non_dominated,
    search,
    worth_choosing,
)
from pockengine.finetune.search_starts import ORDERS, longest_prefixes
from pockengine.finetune.space import items_of, scheme_of, space_of
from pockengine.tests.finetune.tiny import tiny_subject

GRAPH = tiny_subject().graph
COSTS = CostModel(GRAPH, load_device("rpi4"))
SPACE = space_of(GRAPH, items_of(GRAPH))


def table(gains: dict[Item, float]) -> Contributions:
    return Contributions(0.5, {item: Gain(gain, 0.0, 3) for item, gain in gains.items()})


def random_table(items: tuple[Item, ...], seed: int) -> Contributions:
    random = Random(seed)
    return table({item: random.uniform(0.2, 1.0) * item.share**0.5 for item in items})


TABLE = random_table(SPACE.items, 1)


def every_scheme() -> list[tuple[Item, ...]]:
    options = [(None, *SPACE.biases), *((None, *weights) for weights in SPACE.weights)]
    return [tuple(item for item in each if item) for each in itertools.product(*options)]


@pytest.mark.parametrize("sampler", ["nsga2", "random"])
def test_search_matches_exhaustive_search(sampler: str) -> None:
    tried = [(items, COSTS.cost(scheme_of(GRAPH, items))) for items in every_scheme()]
    memory = sorted(cost.memory_bytes for _, cost in tried)[len(tried) // 2]
    fitting = [items for items, cost in tried if cost.memory_bytes <= memory]
    best = max(sum(TABLE.gains[item].mean for item in items) for items in fitting)
    front = search(COSTS, SPACE, TABLE, Budget(memory), SearchEffort(150, sampler=sampler))

    assert front.best.gain == pytest.approx(best)
    assert front.curve[-1] == front.best.gain
    assert len(front.curve) == 150


def test_budget_is_met_by_the_compiled_plan() -> None:
    full = COSTS.cost(scheme_of(GRAPH, [options[-1] for options in SPACE.weights]))
    budget = Budget(full.memory_bytes - 1, full.cycles - 1, full.work - 1)
    front = search(COSTS, SPACE, TABLE, budget, SearchEffort(40))

    for point in front.points:
        fresh = CostModel(GRAPH, load_device("rpi4")).cost(scheme_of(GRAPH, point.items))
        assert fresh == point.cost
        assert fresh.memory_bytes < full.memory_bytes
        assert fresh.cycles < full.cycles


def test_budget_equal_to_the_cost_allows_a_scheme() -> None:
    expected = [SPACE.weights[1][0]]
    cost = COSTS.cost(scheme_of(GRAPH, expected))

    assert Budget(cost.memory_bytes, cost.cycles, cost.work).allows(cost)
    assert not Budget(cost.memory_bytes - 1).allows(cost)


def test_search_is_deterministic_in_its_seed() -> None:
    def run(seed: int) -> object:
        return search(COSTS, SPACE, TABLE, Budget(), SearchEffort(30, seed, warm=False))

    assert run(3) == run(3)
    assert run(3).curve != run(4).curve  # type: ignore[attr-defined]


def deep_graph(depth: int) -> Graph:
    """Return a graph of linear layers of 16 channels, and a head."""
    g = Builder(Graph("deep"))
    hidden = g.input("x", TensorType(F32, (4, 16)))
    for layer in range(depth):
        weight = g.param(f"layers.{layer}.weight", np.ones((16, 16), np.float32))
        bias = g.param(f"layers.{layer}.bias", np.ones(16, np.float32))
        hidden = g.relu(g.add(g.matmul(hidden, weight), bias))
    logits = g.matmul(hidden, g.param("head.weight", np.ones((16, 3), np.float32)))
    loss = g.cross_entropy(logits, g.input("target", TensorType(I64, (4,))))
    g.graph.outputs |= {"loss": loss, "logits": logits}
    return g.graph


class SumCosts:
    """Fake costs of a net too deep to compile in a test: bytes proportional to shares."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def cost(self, scheme: Scheme) -> Cost:
        parts = [choice.share for name, choice in scheme.rules if name.endswith("weight")]
        memory = sum(round(1000 * share * (1 + place % 5)) for place, share in enumerate(parts))
        return Cost(memory, memory, 0, 0, 0, float(len(scheme.rules)), 0.0)


def best_gains(graph: Graph, sampler: str, warm: bool) -> float:
    space = space_of(graph, items_of(graph))
    costs, gains = SumCosts(graph), random_table(space.items, 0)
    fronts = [
        search(
            costs, space, gains, Budget(12_000), SearchEffort(250, seed, sampler, warm)
        )
        for seed in range(3)
    ]  # fmt: skip
    return fmean(front.best.gain for front in fronts)


def test_evolution_beats_random_draws_at_equal_evaluations() -> None:
    graph = deep_graph(12)
    drawn, evolved = best_gains(graph, "random", False), best_gains(graph, "nsga2", False)

    assert evolved > drawn
    assert best_gains(graph, "nsga2", True) > drawn


@pytest.mark.parametrize("memory", [0, 3_000, 12_000, 10**9])
def test_greedy_prefixes_are_maximal(memory: int) -> None:
    graph = deep_graph(12)
    space, costs = space_of(graph, items_of(graph)), SumCosts(graph)
    tried: dict[tuple[int, ...], bool] = {}

    def fits(genome: tuple[int, ...]) -> bool:
        cost = costs.cost(scheme_of(graph, chosen(space, genome)))
        tried[genome] = cost.memory_bytes <= memory
        return tried[genome]

    found = list(longest_prefixes(space, random_table(space.items, 0), graph, fits))
    assert len(found) == len(ORDERS)
    nothing, everything = (0,) * 13, (len(space.biases), *map(len, space.weights))
    for genome in found:
        assert tried.get(genome, genome == nothing)
        assert genome == everything or not all(tried.values())
    if memory == 0:
        assert not any(sum(genome[1:]) for genome in found)
    elif memory < 10**9:
        assert len(set(found)) > 2


def test_warm_start_is_no_worse_than_greedy_and_counts_evaluations() -> None:
    graph = deep_graph(12)
    space, costs = space_of(graph, items_of(graph)), SumCosts(graph)
    gains, budget = random_table(space.items, 0), Budget(3_000)
    prefixes = longest_prefixes(
        space, gains, graph,
        lambda genome: budget.allows(costs.cost(scheme_of(graph, chosen(space, genome)))),
    )  # fmt: skip
    greedy = max(sum(gains.gains[item].mean for item in chosen(space, each)) for each in prefixes)
    front = search(costs, space, gains, budget, SearchEffort(60))
    assert front.best.gain >= greedy
    assert len(front.curve) == 60
    assert len(search(costs, space, gains, budget, SearchEffort(3)).curve) == 3


def test_infeasible_budget_names_the_cheapest_cost() -> None:
    head = COSTS.cost(scheme_of(GRAPH, []))

    with pytest.raises(
        FinetuneError, match=rf"head alone, takes {head.memory_bytes:,} bytes"
    ) as no:
        search(COSTS, SPACE, TABLE, Budget(48_000, cycles=head.cycles / 2))
    half = f"{head.cycles / 2e6:,.2f} M modelled cycles"
    assert f"the budget is 48,000 bytes beyond inference, {half}; allow more" in str(no.value)


def test_impossible_memory_names_the_nearest_scheme() -> None:
    with pytest.raises(FinetuneError, match=r"nearest of those tried \(.*\) takes [0-9,]+ bytes"):
        search(COSTS, SPACE, TABLE, Budget(0), SearchEffort(5))


def test_search_continues_if_only_the_head_exceeds_the_memory() -> None:
    class Packed(SumCosts):
        """Costs in which the head alone needs extra memory."""

        def cost(self, scheme: Scheme) -> Cost:
            cost = super().cost(scheme)
            return cost if len(scheme.rules) > 2 else replace(cost, extra_bytes=10**6)

    graph = deep_graph(3)
    space = space_of(graph, items_of(graph))
    gains = random_table(space.items, 0)
    front = search(Packed(graph), space, gains, Budget(9_000), SearchEffort(40))

    assert all(point.items for point in front.points)


def test_error_names_an_unmeasured_item() -> None:
    with pytest.raises(FinetuneError, match=r"no gain of biases, last 1 blocks"):
        search(COSTS, SPACE, table({}), Budget())


def test_unknown_sampler_is_refused() -> None:
    with pytest.raises(FinetuneError, match="nsga2 or random"):
        search(COSTS, SPACE, TABLE, Budget(), SearchEffort(sampler="guess"))


def test_items_without_gain_are_dropped() -> None:
    small, large = SPACE.weights[1][0], SPACE.weights[1][-1]
    gains = dict.fromkeys(SPACE.items, -0.1) | {small: 0.3, large: 0.2}
    left = worth_choosing(SPACE, table(gains))

    assert left.items == (small,)


def test_only_the_head_trains_if_nothing_gains() -> None:
    front = search(COSTS, SPACE, table(dict.fromkeys(SPACE.items, 0.0)), Budget())

    assert [point.items for point in front.points] == [()]


def test_samples_have_few_and_many_weights() -> None:
    prior = Prior([3, *([4] * 20)], Random(0))
    drawn = [prior.draw() for _ in range(300)]
    counts = [sum(gene > 0 for gene in genome[1:]) for genome in drawn]

    assert min(counts) == 0
    assert max(counts) == 20
    assert sum(count <= 4 for count in counts) > 100
    assert {genome[0] for genome in drawn} == {0, 1, 2, 3}


def test_front_has_no_dominated_point() -> None:
    front = search(COSTS, SPACE, TABLE, Budget(), SearchEffort(60))

    assert non_dominated(front.points) == list(front.points)
    assert [point.gain for point in front.points] == sorted(
        (point.gain for point in front.points), reverse=True
    )
