"""Candidates: every preset within the budget and the searched schemes, without duplicates."""

import pytest

from pockengine.compiler.sparse import preset
from pockengine.devices import load_device
from pockengine.finetune.candidates import candidates, gain_of_preset, presets_within
from pockengine.finetune.contributions import Contributions, Gain
from pockengine.finetune.cost import CostModel
from pockengine.finetune.search import Budget, Point
from pockengine.finetune.space import items_of, scheme_of, space_of
from pockengine.tests.finetune.tiny import tiny_subject

GRAPH = tiny_subject().graph
COSTS = CostModel(GRAPH, load_device("rpi4"))
SPACE = space_of(GRAPH, items_of(GRAPH))
TABLE = Contributions(0.5, {item: Gain(0.01 * item.share, 0.0, 2) for item in SPACE.items})


def names(budget: Budget) -> list[str]:
    return [one.scheme.name for one in presets_within(COSTS, budget)]


def test_every_applicable_preset_is_a_candidate_without_a_budget() -> None:
    """`sparse` does not support the tiny model's family, and LoRA needs attention."""
    assert names(Budget()) == ["full", "head-only", "bias-only", "last-1-blocks"]


def test_presets_meet_the_budget() -> None:
    last = COSTS.cost(preset("last-1-blocks", GRAPH))
    fitting = names(Budget(last.memory_bytes))
    assert "full" not in fitting
    assert "last-1-blocks" in fitting
    assert "last-1-blocks" not in names(Budget(last.memory_bytes - 1))
    for one in presets_within(COSTS, Budget(last.memory_bytes)):
        assert one.cost == COSTS.cost(one.scheme)
        assert one.cost.memory_bytes <= last.memory_bytes


def test_searched_schemes_are_candidates_without_duplicates() -> None:
    whole = [options[-1] for options in SPACE.weights]
    points = [
        Point(tuple(items), 0.1, COSTS.cost(scheme_of(GRAPH, items)))
        for items in (whole[:1], whole, [])
    ]
    entrants = candidates(COSTS, points, presets_within(COSTS, Budget()))

    assert [one.scheme.name for one in entrants] == [*names(Budget()), "searched-1"]
    assert entrants[-1].gain == 0.1


def test_gain_of_a_preset_is_the_gain_of_its_items() -> None:
    weights = len(SPACE.weights)
    assert gain_of_preset(GRAPH, preset("head-only", GRAPH), TABLE) == 0
    assert gain_of_preset(GRAPH, preset("bias-only", GRAPH), TABLE) == pytest.approx(0.01)
    full = gain_of_preset(GRAPH, preset("full", GRAPH), TABLE)
    assert full == pytest.approx(0.01 * (weights + 1))
    share = scheme_of(GRAPH, [SPACE.weights[1][0]])
    assert gain_of_preset(GRAPH, share, TABLE) is None
