"""TVM's tuner: its results are correct, stored and used; files are validated."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule

import pockengine
from pockengine.backends.protocol import BackendOptions
from pockengine.backends.registry import backend_for
from pockengine.backends.tuned import TunedPlan, TunedTable, new_table, write_table
from pockengine.backends.tvm import trials
from pockengine.backends.tvm import tune as tuner
from pockengine.backends.tvm.backend import load_model
from pockengine.backends.tvm.built import BuiltKernel
from pockengine.backends.tvm.library import target_of
from pockengine.backends.tvm.traces import applied, key_of, normalized
from pockengine.backends.tvm.trials import INSTRUCTIONS, trial_process
from pockengine.backends.tvm.tune import TunerOptions, TvmProblem, find_problems, searched, tune
from pockengine.compiler.compile import compile_program
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.errors import CompileError, MissingPackage, RuntimeFailure
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.tvm.kernels import FUNCTIONS, run
from pockengine.tests.compiler.small_nets import attention_net

HOST = load_device("host")
GRAPH = attention_net(rows=8)
SPLIT = json.dumps(
    [
        [
            ["GetSBlock", [], ["T_matmul_NN", "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
            ["Reorder", ["l3", "l1", "l2"], [], []],
        ],
        [],
    ]
)


def product() -> Any:
    return FUNCTIONS["product"]


def problem(function: Any) -> TvmProblem:
    return TvmProblem("product", key_of(function), 2, function, 1e-6)


def found_by(*traces: str) -> Any:
    """A search that returns these results."""
    return lambda *_: list(traces)


def faster(kernels: Sequence[BuiltKernel], _: Sequence[Any]) -> list[float]:
    """Times that decrease from kernel to kernel."""
    return [1e-6 / (number + 1) for number in range(len(kernels))]


def tuned_by(table: TunedTable, search: Any, timed: Any = faster) -> tuple[TunedTable, list[str]]:
    messages: list[str] = []
    saved: list[TunedTable] = []
    problems = [problem(product())]
    options = TunerOptions(8, search, timed)
    table = tune(problems, HOST, table, saved.append, messages.append, options)
    assert [each.rows for each in saved] in ([], [table.rows])
    return table, messages


@pytest.fixture(scope="module")
def process() -> Iterator[Any]:
    with trial_process() as started:
        yield started


def test_a_search_finds_schedules_that_compute_the_same(process: Any) -> None:
    function = product()
    for trace in searched(function, target_of(HOST), 8, process):
        scheduled = applied(function, trace)
        assert scheduled.script() != function.script()
        np.testing.assert_allclose(run(scheduled), run(function), rtol=1e-5, atol=1e-5)
    assert INSTRUCTIONS not in sys.modules  # these take longer than everything else


def test_why_no_schedule_ran_is_reported(monkeypatch: pytest.MonkeyPatch, process: Any) -> None:
    monkeypatch.setattr(trials, "timed", _broken)
    with pytest.raises(
        RuntimeFailure, match=r"ran no schedule of 2 \(ValueError: no such kernel\); try more"
    ):
        searched(product(), target_of(HOST), 2, process)


def _broken(*_: Any) -> float:
    raise ValueError("no such kernel")


class Late:
    """A process in which every call times out."""

    def submit(self, *_: Any) -> Future[float]:
        future: Future[float] = Future()
        future.set_exception(TimeoutError())
        return future


def test_a_schedule_that_takes_too_long_is_abandoned() -> None:
    with pytest.raises(RuntimeFailure, match=r"\(a schedule took more than 300 s\)"):
        searched(product(), target_of(HOST), 1, Late())


class Instant:
    """A process that runs nothing: it records schedules, each faster than the one before."""

    def __init__(self) -> None:
        self.schedules: list[str] = []

    def submit(self, _: Any, module: str, __: Any) -> Future[float]:
        self.schedules.append(tvm.ir.load_json(module)["main"].script())
        future: Future[float] = Future()
        future.set_result(1 / len(self.schedules))
        return future


def test_each_measured_schedule_is_that_of_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "BEST", 64)
    function, process = FUNCTIONS["softmax"], Instant()
    traces = searched(function, target_of(HOST), 64, process)
    found = [applied(function, trace).script() for trace in traces]
    assert len(found) > 32
    assert sorted(found) == sorted(process.schedules)


def test_postprocessors_do_not_change_the_kernel_of_a_search() -> None:
    kernel = normalized(FUNCTIONS["softmax"])
    before, schedule = kernel.script(), Schedule(kernel)
    target = tvm.target.Target({**target_of(HOST).export(), "num-cores": 1})
    context = tuner._task(FUNCTIONS["softmax"], target, 8)
    (space,) = context.generate_design_space()
    plain = {"SampleComputeLocation": -1, "SampleCategorical": 0}  # no block moves, none unrolls
    space.trace.simplified(True).apply_to_schedule(
        schedule, True, lambda step, _, __, decision: plain.get(step.kind.name, decision)
    )
    schedule.enter_postproc()
    assert all(each.apply(schedule) for each in context.space_generator.postprocs)
    assert "vectorized" in schedule.mod.script()
    assert kernel.script() == before


def test_a_trace_that_does_not_apply_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []

    def first_refused(function: Any, trace: str) -> Any:
        if not refused:
            refused.append(trace)
            raise ValueError("2 loops, not 3")
        return applied(function, trace)

    monkeypatch.setattr(tuner, "applied", first_refused)
    traces = searched(product(), target_of(HOST), 8, Instant())
    assert len(traces) == tuner.BEST
    assert refused[0] not in traces


def test_a_search_without_a_trace_that_applies_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "applied", _broken)
    with pytest.raises(
        RuntimeFailure, match=r"none of 8 schedules .* applies to the kernel again; try"
    ):
        searched(product(), target_of(HOST), 8, Instant())


def test_what_is_right_and_faster_wins_and_is_not_tuned_again() -> None:
    table, messages = tuned_by(new_table(HOST, tuner.UNIT), found_by(SPLIT))
    (row,) = table.rows.values()
    assert (row.plan, row.value, row.default_value) == (SPLIT, 500, 1000)
    assert messages == ["1 of 1: product, called 2 times: 8 trials"]
    again, messages = tuned_by(table, found_by())
    assert (again, messages) == (table, ["1 of 1: product, called 2 times: tuned already"])


def test_what_is_hardly_faster_does_not_win() -> None:
    hardly = lambda kernels, _: [1e-6, 0.99e-6][: len(kernels)]  # noqa: E731
    table, _ = tuned_by(new_table(HOST, tuner.UNIT), found_by(SPLIT), hardly)
    (row,) = table.rows.values()
    assert row.plan == row.default


def test_what_computes_something_else_does_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "_agree", lambda *_: False)
    table, _ = tuned_by(new_table(HOST, tuner.UNIT), found_by(SPLIT))
    (row,) = table.rows.values()
    assert row.plan == row.default


def test_results_that_differ_are_seen() -> None:
    ones = [np.ones(3, np.float32)]
    assert tuner._agree(ones, [ones[0] * np.float32(1 + 1e-5)])
    assert not tuner._agree(ones, [ones[0] * np.float32(1 + 1e-3)])
    assert not tuner._agree(ones, [np.full(3, np.nan, np.float32)])


def test_what_the_search_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="needs cloudpickle and psutil, not installed"):
        searched(product(), target_of(HOST), 8, None)


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ("{", "no trace of MetaSchedule"),
        ("[[], [], []]", "no trace of MetaSchedule"),
        ("[" * 70000, "a trace of 70000 characters"),
        (SPLIT.replace("Reorder", "Tensorize"), "'Tensorize' is not a step of a CPU tuner"),
        (SPLIT.replace("Reorder", "Parallel"), "'Parallel' is not a step of a CPU tuner"),
        (
            '[[["Annotate", ["b0", "x"], ["pragma_import_llvm"], []]], []]',
            "pragma_import_llvm.* is not an annotation of a CPU tuner",
        ),
        (
            '[[["Annotate", ["b0", 100000], ["pragma_auto_unroll_max_step"], []]], []]',
            "at most 512",
        ),
        (SPLIT.replace("T_matmul_NN", "other"), "other"),
        ("[[], [[3, 1]]]", "a decision on a step that is not there"),
    ],
)
def test_a_trace_from_a_file_is_checked(trace: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        applied(product(), trace)


def test_a_kernel_is_as_it_was_after_a_trace() -> None:
    before = product().script()
    applied(product(), SPLIT)
    assert product().script() == before


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> list[TvmProblem]:
    backend = backend_for(HOST.on("tvm"), BackendOptions())
    program = compile_program(GRAPH, Training("full"), target=backend.target())
    folder = tmp_path_factory.mktemp("models")
    backend.write(program, folder)
    return find_problems(load_model(folder, "train"), HOST)


def test_kernels_are_listed_by_what_they_take(problems: list[TvmProblem]) -> None:
    taken = [each.calls * each.seconds for each in problems]
    assert len(problems) > 3
    assert taken == sorted(taken, reverse=True)
    assert min(taken) > 0


def _write(path: Path, traces: Mapping[str, str], unit: str = tuner.UNIT) -> Path:
    rows = {key: TunedPlan(trace, 1, "ours", 2, "x") for key, trace in traces.items()}
    write_table(new_table(HOST, unit).with_rows(rows), path)
    return path


def test_a_step_uses_what_was_tuned(
    problems: list[TvmProblem], process: Any, tmp_path: Path
) -> None:
    named = {each.name: each for each in problems}
    traces = {
        each.key: searched(each.function, target_of(HOST), 8, process)[0]
        for each in (named["matmul"], named["softmax"])
    }
    path = _write(tmp_path / "tuned.json", traces)
    batch, results = draw(GRAPH, 0), []
    libraries = []
    for tuned in (None, path):
        compiled = pockengine.compile(GRAPH, None, backend="tvm", tuned=tuned)
        assert compiled.artifact.library is not None
        libraries.append(compiled.artifact.library.read_bytes())
        with compiled.session() as session:
            results.append([float(session.train_step(batch, 0.01)["loss"]) for _ in range(3)])
    assert libraries[0] != libraries[1]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4)


def test_what_no_longer_fits_is_reported(problems: list[TvmProblem], tmp_path: Path) -> None:
    traces = {problems[0].key: SPLIT.replace("T_matmul_NN", "gone")}
    path = _write(tmp_path / "tuned.json", traces)
    with pytest.raises(CompileError, match=r"the tuned schedule of \w+ does not fit: .*gone"):
        pockengine.compile(GRAPH, None, backend="tvm", tuned=path)


def test_a_table_of_another_release_is_refused(problems: list[TvmProblem], tmp_path: Path) -> None:
    path = _write(tmp_path / "tuned.json", {problems[0].key: SPLIT}, "ns of 1 thread, by TVM 0.1")
    with pytest.raises(CompileError, match=r"are in ns of 1 thread, by TVM 0\.1, those of TVM in"):
        pockengine.compile(GRAPH, None, backend="tvm", tuned=path)
    assert tvm.__version__ in tuner.UNIT
