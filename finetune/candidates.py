"""Candidates of a race: the schemes that a search found, and every preset that fits."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pockengine.compiler.ir import Graph
from pockengine.compiler.sparse import Scheme, preset
from pockengine.compiler.sparse.presets import blocks_of
from pockengine.errors import SchemeError
from pockengine.finetune.contributions import Contributions, Item
from pockengine.finetune.cost import Cost
from pockengine.finetune.search import Budget, Costs, Point, predicted_gain
from pockengine.finetune.space import biases_of, scheme_of

FOUND = "searched-"
"""Prefix of the names of searched schemes, before their rank."""

PRESETS = ("full", "head-only", "bias-only", "sparse", "lora-8")
"""Presets, besides last-N-blocks with the largest N that the budget allows."""


@dataclass(frozen=True)
class SchemeCandidate:
    """A scheme, its cost, and its predicted gain; None if there is no prediction."""

    scheme: Scheme
    cost: Cost
    gain: float | None = None


def candidates(
    costs: Costs, points: Sequence[Point], presets: Iterable[SchemeCandidate]
) -> list[SchemeCandidate]:
    """Return the presets, then the points of a search, without duplicates."""
    graph = costs.graph
    found = [
        SchemeCandidate(scheme_of(graph, point.items, f"{FOUND}{place}"), point.cost, point.gain)
        for place, point in enumerate(points, 1)
    ]
    distinct: dict[object, SchemeCandidate] = {}
    for one in (*presets, *found):
        distinct.setdefault(tuple(one.scheme.choices(graph).items()), one)
    return list(distinct.values())


def presets_within(
    costs: Costs,
    budget: Budget,
    contributions: Contributions | None = None,
    names: Sequence[str] = PRESETS,
) -> Iterator[SchemeCandidate]:
    """Yield the presets that this model has and the budget allows."""
    graph = costs.graph
    for name in (*names, *_last_blocks(costs, budget)):
        scheme = _preset_or_none(name, graph)
        if scheme is None:
            continue
        cost = costs.cost(scheme)
        if budget.allows(cost):
            gain = None if contributions is None else gain_of_preset(graph, scheme, contributions)
            yield SchemeCandidate(scheme, cost, gain)


def gain_of_preset(graph: Graph, scheme: Scheme, contributions: Contributions) -> float | None:
    """Add the gains of the items that a scheme trains whole; None for adapters and channels."""
    if any(choice.kind not in ("full", "frozen") for choice in scheme.choices(graph).values()):
        return None
    trained = set(scheme.resolve(graph))
    weights = [
        item
        for item in contributions.gains
        if item.kind == "weight" and item.share == 1 and item.name in trained
    ]
    return predicted_gain(
        contributions, [*weights, *_largest_biases(graph, trained, contributions)]
    )


def _largest_biases(graph: Graph, trained: set[str], contributions: Contributions) -> list[Item]:
    """Return the largest bias set whose biases all train."""
    whole = [
        (len(biases), item)
        for item in contributions.gains
        if item.kind == "biases" and trained.issuperset(biases := biases_of(graph, item))
    ]
    return [max(whole)[1]] if whole else []


def _last_blocks(costs: Costs, budget: Budget) -> list[str]:
    """Return last-N-blocks with the largest N that fits; nothing if even N = 1 does not."""
    longest: list[str] = []
    for count in range(1, len(blocks_of(costs.graph)) - 1):
        name = f"last-{count}-blocks"
        if not budget.allows(costs.cost(preset(name, costs.graph))):
            break
        longest = [name]
    return longest


def _preset_or_none(name: str, graph: Graph) -> Scheme | None:
    """Return a preset, or None if it does not support this model's names."""
    try:
        return preset(name, graph)
    except SchemeError:
        return None
