"""The tuner stores the fastest plans in a table, which is validated when read and used exactly."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.tune import find_problems, host_meter
from pockengine.backends.native.tuning import Figure, Meter, TuningProblem, decide, likeliest, tune
from pockengine.backends.picking import P, PlanCandidate, cheapest
from pockengine.backends.tuned import (
    TunedPlan,
    TunedTable,
    new_table,
    picker_of,
    read_table,
    write_table,
)
from pockengine.compiler.ir import Node
from pockengine.devices.schema import load_device
from pockengine.errors import CompileError, RuntimeFailure
from pockengine.tests.backends.c.harness import device_of
from pockengine.tests.backends.c.problems import convolution, matmul

DEVICE = device_of("avx2", 3)
SMALL, OTHER = matmul(24, 40, 16), matmul(40, 33, 7)


def drop(table: TunedTable) -> None:
    """Save nothing."""


def problems_of(*nodes: Node, plans: int = 4) -> list[TuningProblem]:
    return find_problems(nodes, DEVICE, plans=plans)


class FakeMeter:
    """A device on which the last plan of each problem takes half of the other plans' time."""

    def __init__(self) -> None:
        self.measured: list[str] = []
        self.meter = Meter("ticks", 0.02, self.measure)

    def measure(self, problems: Sequence[TuningProblem]) -> list[list[Figure]]:
        self.measured += [problem.key for problem in problems]
        return [[*[Figure(200, 180)] * (len(p.kernels) - 1), Figure(100, 90)] for p in problems]


def test_likeliest_plans_are_the_default_one_of_each_method_and_the_cheapest() -> None:
    cycles = {"a 1": 5.0, "a 2": 4.0, "a 3": 4.5, "b 1": 7.9, "c 1": 8.1, "a 4": 4.2}
    candidates = [PlanCandidate(label, each, None) for label, each in cycles.items()]
    assert likeliest(candidates, 4) == ["a 2", "b 1", "a 4", "a 3"]


def test_problems_are_the_shapes_of_a_step_with_their_calls() -> None:
    found = problems_of(SMALL, OTHER, matmul(24, 40, 16))
    assert [(problem.calls, len(problem.kernels)) for problem in found] == [(2, 4), (1, 4)]
    assert found[0].key == "matmul 24x16 16x40 f32"
    default = next(iter(found[0].kernels.values()))
    assert default == CBackend(DEVICE).kernel(SMALL)


def test_nodes_that_differ_in_names_alone_are_chosen_once() -> None:
    requests = []

    def pick(key: str, candidates: Sequence[PlanCandidate[P]]) -> P:
        requests.append(key)
        return cheapest(key, candidates)

    backend = CBackend(DEVICE, pick=pick)
    first, same, other = (backend.choose(node) for node in (SMALL, matmul(24, 40, 16), OTHER))
    assert first is same
    assert first != other
    assert len(requests) == 2


def test_a_kernel_is_of_the_choice_that_is_asked_for() -> None:
    (problem,) = problems_of(SMALL, plans=2)
    table, backend = new_table(DEVICE, "ticks"), CBackend(DEVICE)
    choices = []
    for label in problem.kernels:
        forced = table.with_rows({problem.key: TunedPlan(label, 1, label, 1, "")})
        choices.append(CBackend(DEVICE, pick=forced.pick).choose(SMALL))
    first, second = problem.kernels.values()
    assert backend.kernel(SMALL, replace(choices[0])) == first
    others = [replace(choices[1]) for _ in range(100)]  # one has the address of an old one
    assert all(backend.kernel(SMALL, other) == second for other in others)


def test_convolutions_are_tried_by_each_method() -> None:
    conv = convolution((2, 28, 28, 32), (3, 3, 32, 32))
    for problem in find_problems([*conv.values()], DEVICE):
        methods = {label.split(" ")[0] for label in problem.kernels}
        assert len(methods) > 1, problem.key


@pytest.mark.parametrize(
    ("figures", "won"),
    [
        ([(100, 90), (80, 70), (60, 50)], 2),
        ([(100, 90), (100, 90), (100, 90)], 0),
        ([(100, 90), (98.5, 88), (99, 60)], 0),  # within the noise
        ([(100, 90), (80, 89), (90, 80)], 2),  # the fastest call must agree
    ],
)
def test_a_plan_wins_by_more_than_the_noise(figures: list[tuple[float, float]], won: int) -> None:
    (problem,) = problems_of(SMALL, plans=3)
    row = decide(problem, [Figure(*figure) for figure in figures], noise=0.02)
    labels = list(problem.kernels)
    assert (row.plan, row.value) == (labels[won], round(figures[won][0]))
    assert (row.default, row.default_value) == (labels[0], 100)


def test_the_plan_that_won_is_the_kernel_that_is_emitted(tmp_path: Path) -> None:
    problems = problems_of(SMALL, OTHER)
    made = tune(problems, FakeMeter().meter, new_table(DEVICE, "ticks"), drop)
    write_table(made, tmp_path / "tuned.json")
    backend = CBackend(DEVICE, pick=picker_of(tmp_path / "tuned.json", DEVICE))
    for node, problem in zip((SMALL, OTHER), problems, strict=True):
        assert backend.kernel(node) == list(problem.kernels.values())[-1]
        assert backend.kernel(node) != CBackend(DEVICE).kernel(node)


def test_plans_that_are_no_more_are_passed_over() -> None:
    row = TunedPlan("ROWS 99x9x8", 1, "ROWS 1x1x8", 2, "")
    table = new_table(DEVICE, "ticks").with_rows({problems_of(SMALL)[0].key: row})
    for table_ in (table, new_table(DEVICE, "ticks")):
        assert CBackend(DEVICE, pick=table_.pick).kernel(SMALL) == CBackend(DEVICE).kernel(SMALL)


def test_a_second_run_measures_what_is_new_or_has_changed() -> None:
    first, second, third = FakeMeter(), FakeMeter(), FakeMeter()
    table = tune(problems_of(SMALL), first.meter, new_table(DEVICE, "ticks"), drop)
    table = tune(problems_of(SMALL, OTHER), second.meter, table, drop)
    assert second.measured == [problems_of(OTHER)[0].key]
    assert set(table.rows) == {*first.measured, *second.measured}
    tune(problems_of(SMALL, OTHER, plans=3), third.meter, table, drop)
    assert third.measured == list(table.rows)


def test_measurements_before_a_failure_are_stored() -> None:
    problems = problems_of(*(matmul(8 + m, 40, 16) for m in range(20)))
    saved: list[TunedTable] = []
    fake = FakeMeter()

    def fail_later(batch: Sequence[TuningProblem]) -> list[list[Figure]]:
        if saved:
            raise RuntimeFailure("the board is gone")
        return fake.measure(batch)

    with pytest.raises(RuntimeFailure, match="gone"):
        tune(problems, Meter("ticks", 0.0, fail_later), new_table(DEVICE, "ticks"), saved.append)
    assert 0 < len(saved[0].rows) < len(problems)


def test_tables_read_back_as_they_were_written(tmp_path: Path) -> None:
    table = tune(problems_of(SMALL), FakeMeter().meter, new_table(DEVICE, "ticks"), drop)
    file = tmp_path / "a" / "tuned.json"
    write_table(table, file)
    assert read_table(file, DEVICE) == table
    assert [*file.parent.iterdir()] == [file]


ROW = {"plan": "a", "value": 1, "default": "a", "default_value": 1, "kernels": ""}
GOOD = {"schema": 1, "device": "test", "cpu": "test, avx2, 3 cores", "unit": "ns", "rows": {}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[" * 100_000, "tuned.json"),
        ("[]", "schema 1"),
        (json.dumps({**GOOD, "schema": 2}), "schema 1"),
        (json.dumps({**GOOD, "unit": 5}), "device, cpu, unit"),
        (json.dumps({**GOOD, "rows": []}), "rows"),
        (json.dumps({**GOOD, "rows": {"x": 1}}), "the row 'x' must have plan"),
        (json.dumps({**GOOD, "rows": {"x": {**ROW, "value": "1"}}}), "the row 'x'"),
        (json.dumps({**GOOD, "rows": {"x": {**ROW, "more": 1}}}), "the row 'x'"),
        (json.dumps({**GOOD, "device": "rpi4"}), "are of rpi4 .*not of test"),
        (json.dumps({**GOOD, "cpu": "test, avx2, 4 cores"}), "4 cores"),
    ],
)
def test_a_damaged_or_foreign_table_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "tuned.json"
    file.write_text(text)
    with pytest.raises(CompileError, match=message) as raised:
        read_table(file, DEVICE)
    assert str(file) in str(raised.value)
    assert "remove" not in str(raised.value)  # it may be another file of the user


def test_a_missing_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"none\.json.*run pockengine tune"):
        picker_of(tmp_path / "none.json", DEVICE)


def test_this_machine_is_measured_by_time() -> None:
    device = load_device("host")
    problems = find_problems([SMALL, OTHER], device, plans=2)
    table = tune(problems, host_meter(device), new_table(device, "ns"), drop)
    assert [*table.rows] == [problem.key for problem in problems]
    for row in table.rows.values():
        assert 0 < row.value <= row.default_value < 1e9


def test_a_benchmark_that_ends_early_is_an_error() -> None:
    problems = find_problems([SMALL], replace(load_device("host")), plans=2)
    meter = host_meter(load_device("host"), launcher=("echo",))
    with pytest.raises(RuntimeFailure, match="printed"):
        meter.measure(problems)
