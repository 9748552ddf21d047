"""Limits as budgets, measurements of the found schemes, and recipes from a table."""

import json

import pytest

from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.sparse import preset
from pockengine.devices import load_device
from pockengine.errors import FinetuneError
from pockengine.finetune import search_limits
from pockengine.finetune.candidates import SchemeCandidate
from pockengine.finetune.cost import CostModel
from pockengine.finetune.cost_measured import fit_line, measure_milliseconds
from pockengine.finetune.recipe import Recipe, settings_of
from pockengine.finetune.search import Point
from pockengine.finetune.search_limits import SearchLimits, budget_of, first_within, tightened
from pockengine.finetune.search_validate import finalists, recipe_of
from pockengine.finetune.sensitivity import header_of
from pockengine.finetune.space import items_of, scheme_of
from pockengine.tests.finetune.tiny import tiny_subject, tiny_tuning

SUBJECT = tiny_subject()
GRAPH = SUBJECT.graph
ITEMS = items_of(GRAPH)


def test_line_is_fit_through_two_measured_schemes() -> None:
    assert fit_line((10, 100), (20, 300)).modelled(200) == pytest.approx(15)
    with pytest.raises(FinetuneError, match="too busy to measure"):
        fit_line((10, 100), (20, 90))


def test_board_latency_is_cycles_at_its_clock() -> None:
    budget = budget_of(SearchLimits(milliseconds=2.0), CostModel(GRAPH, load_device("rpi4")))

    assert budget.cycles == pytest.approx(2.0 * 1e3 * 1500)


def test_device_without_a_clock_has_no_latency() -> None:
    with pytest.raises(FinetuneError, match="no clock"):
        budget_of(SearchLimits(milliseconds=2.0), CostModel(GRAPH, load_device("snapdragon-dsp")))


def test_counted_instructions_select_the_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head-only and full calibrate the budget; the first scheme within the limit is chosen."""
    costs = CostModel(GRAPH, load_device("rpi4"))
    counts = {0: 1000, 1: 2100, 2: 1900}

    def counted(costs: CostModel, scheme) -> int:  # type: ignore[no-untyped-def]
        trained = sum(name.endswith("weight") for name, _ in scheme.rules) - 1
        return 3000 if scheme.name == "full" else counts[trained]

    monkeypatch.setattr(search_limits, "_count", counted)
    limits = SearchLimits(instructions=2000)
    head, full = (costs.cost(preset(name, GRAPH)).work for name in ("head-only", "full"))
    assert budget_of(limits, costs).work == pytest.approx((head + full) / 2)
    with pytest.raises(FinetuneError, match="head alone, takes 1,000 on rpi4"):
        budget_of(SearchLimits(instructions=900), costs)

    cost = costs.cost(preset("full", GRAPH))
    one, two = (SchemeCandidate(scheme_of(GRAPH, ITEMS[2:end]), cost) for end in (3, 4))
    assert first_within([one, two], limits, costs) == (
        two,
        "1,900 instructions a step, counted",
    )
    budget = budget_of(limits, costs)
    shorter, longer = (Point(tuple(ITEMS[2:end]), 0.1, cost) for end in (3, 4))
    assert tightened(budget, longer, limits, costs) is None
    lower = tightened(budget, shorter, limits, costs)
    assert lower is not None
    assert budget.work is not None
    assert lower.work == pytest.approx(budget.work * 2000 / 2100)
    with pytest.raises(FinetuneError, match=r"lower --instructions"):
        first_within([one], limits, costs)


def test_step_is_timed_on_this_machine() -> None:
    taken = measure_milliseconds(GRAPH, Training("head-only"), load_device("host"))

    assert 0 < taken < 1000


def test_recipe_is_read_from_a_header() -> None:
    recipe = Recipe(0.05, 3, optimizer=Sgd(momentum=0.9))
    header = json.loads(json.dumps(header_of(SUBJECT, tiny_tuning(), recipe, [0, 1])))

    assert recipe_of(header, recipe.optimizer) == (recipe, [0, 1])
    with pytest.raises(FinetuneError, match="measured by Sgd"):
        recipe_of(header, Sgd())
    with pytest.raises(FinetuneError, match="names no recipe"):
        recipe_of({"recipe": {"optimizer": settings_of(Sgd())}, "seeds": [0]}, Sgd())


def test_finalists_have_at_least_half_the_best_gain() -> None:
    gains = [0.10, 0.099, 0.098, 0.09, 0.08, 0.07, 0.06, 0.05, 0.049, 0.0, -0.1]
    assert finalists(gains, 4) == [0, 2, 5, 7]
    assert finalists(gains[::-1], 1) == [10]
    assert finalists(gains[:2], 4) == [0, 1]
    assert finalists([0.0, -0.1], 3) == []
    assert finalists([], 3) == []
