"""`pockengine budgets`: plans from the largest arena to the smallest, each with more work."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pockengine.cli import budgets
from pockengine.cli.budgets import find_plans
from pockengine.cli.main import cli
from pockengine.errors import BudgetError
from pockengine.farm.results.results import Record


@dataclass
class Fake:
    """A plan with these figures."""

    arena: int
    operations: int
    step_ms: list[float] = field(default_factory=list)


def planner(*plans: tuple[int, int]) -> Any:
    """Return a function that plans: the first of `plans` that fits, with the largest first."""

    def plan(budget: int | None) -> Fake:
        for arena, operations in plans:
            if budget is None or arena <= budget:
                return Fake(arena, operations)
        raise BudgetError("too small", plans[-1][0])

    return plan


def found(*plans: tuple[int, int]) -> list[tuple[int, int]]:
    return [
        (plan.arena, plan.operations) for plan in find_plans(planner(*plans), lambda text: None)
    ]


def test_plans_end_with_the_smallest_arena() -> None:
    assert found((100, 10), (85, 11), (55, 13), (44, 20)) == [
        (100, 10),
        (85, 11),
        (55, 13),
        (44, 20),
    ]
    assert found((100, 10)) == [(100, 10)]


def test_a_plan_that_a_smaller_one_equals_is_left_out() -> None:
    assert found((100, 10), (85, 12), (55, 12), (44, 20)) == [(100, 10), (55, 12), (44, 20)]


def test_a_table_and_records_of_measured_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "ROUNDS", 2)
    file = tmp_path / "records.jsonl"
    arguments = ["budgets", "cnn-16", "--batch", "8", "--measure", "--threads", "1"]

    result = CliRunner().invoke(cli, [*arguments, "--json", str(file)])

    assert result.exit_code == 0, result.output
    records = [Record.from_json(line) for line in file.read_text().splitlines()]
    arenas = [record.value for record in records if record.metric == "arena_bytes"]
    times = [record for record in records if record.metric == "step_ms"]
    work = [record.value for record in records if record.metric == "multiply_adds"]
    assert len(arenas) == len(times) == len(work) > 1
    assert work == sorted(work)
    assert arenas == sorted(arenas, reverse=True)
    assert all(record.n == 2 and record.value > 0 for record in times)
    assert f"{int(arenas[-1]):,}" in result.output
    again = ["inspect", "cnn-16", "--batch", "8", "--memory-budget", str(int(arenas[-1]))]
    assert CliRunner().invoke(cli, again).exit_code == 0


def test_what_cannot_be_timed_is_refused() -> None:
    refused = CliRunner().invoke(cli, ["budgets", "cnn-16", "--device", "rpi4", "--measure"])
    assert refused.exit_code == 1
    assert "not on rpi4 by c; name the device host" in str(refused.exception)
    refused = CliRunner().invoke(cli, ["budgets", "cnn-16", "--threads", "2"])
    assert refused.exit_code == 2
    assert "add --measure" in refused.output
