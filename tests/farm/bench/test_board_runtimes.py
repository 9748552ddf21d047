"""Our step in the runtimes of an emulated board, without an emulator: requests, records, notes."""

import json
import os
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pockengine.errors import FarmError
from pockengine.farm.bench import counting, flow, peers
from pockengine.farm.bench.case import make_case
from pockengine.farm.bench.peers import InRuntime, Measured
from pockengine.farm.bench.result import BenchOptions, BenchResult
from pockengine.farm.boards.board import board_for, load_boards
from pockengine.farm.cli import bench_board
from pockengine.farm.references.guest import GuestFigure
from pockengine.farm.references.timing import Timing

FIGURE = GuestFigure("pockengine-onnx", "0.1.0, onnxruntime 1.26.0", "qemu 7.2", (5, 7, 6), 1e-7)


def options(**chosen: Any) -> BenchOptions:
    board = board_for("rpi4", load_boards())
    settings = {"schemes": ("full",), "steps": 1, "batch": 2, "threads": 1}
    return BenchOptions(board=board, model="cnn-8", **{**settings, **chosen})


def test_requests_go_to_the_worker_and_artifacts_to_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make_case("cnn-8", 2, 1)
    requests: list[tuple[object, ...]] = []

    def measure(*arguments: object, **options: object) -> object:
        requests.append((*arguments, *options.values()))
        return FIGURE

    monkeypatch.setattr(peers, "why_runtime_missing", lambda backend: None)
    monkeypatch.setattr(peers, "compile_by_worker", lambda *arguments: requests.append(arguments))
    monkeypatch.setattr(peers, "measure_guest_runtime", measure)

    there = InRuntime("onnx", "rpi4", "bias-only", case.graph, case.data)
    measured = there.count([1.0], tmp_path / "onnx")

    request = json.loads((tmp_path / "onnx" / "request.json").read_text())
    assert (request["device"], request["scheme"], request["momentum"]) == ("rpi4", "bias-only", 0.9)
    artifact = tmp_path / "onnx" / "artifact"
    assert requests == [
        (tmp_path / "onnx", "onnx", None),
        ("onnx", "rpi4", artifact, case.data, [1.0]),
    ]
    assert (measured.metric, measured.timing.median) == ("guest_instructions", 6.0)


def test_failing_runtimes_are_noted_and_others_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(self: InRuntime, losses: object, folder: Path) -> Measured:
        if self.backend == "tvm":
            raise FarmError("TVM is not here")
        timing = Timing.of([1e6])
        return Measured(f"pockengine-{self.backend}", "1", "guest_instructions", timing, 1e-7)

    monkeypatch.setattr(InRuntime, "count", count)
    chosen = options(runtimes=("onnx", "tvm"))
    case: Any = SimpleNamespace(graph=None, model=chosen.model, batch=2, scheme=str)
    result = BenchResult(flow._setup(chosen, case))
    one: Any = SimpleNamespace(name="full", data=None, losses=[])
    counting.count_runtimes(chosen, case, result, [one], tmp_path)

    assert [(x.engine, x.metric) for x in result.records] == [
        ("pockengine-onnx", "guest_instructions"),
        ("pockengine-onnx", "max_rel_error"),
    ]
    assert result.notes == ["No tvm beside full: TVM is not here"]


@pytest.mark.parametrize("requested", [(), ("tensorflow",)])
def test_an_emulator_without_plugins_fails_only_requested_counts(
    requested: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = tmp_path / "qemu-aarch64"
    emulator.write_text("#!/bin/sh\necho '-cpu  QEMU_CPU  model'\n")
    emulator.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    chosen = replace(options(), references=requested)
    case: Any = SimpleNamespace(model=chosen.model, batch=2)
    result = BenchResult(flow._setup(chosen, case))
    run = SimpleNamespace(instructions=(), firmware=None)
    artifact = SimpleNamespace(device="rpi4")
    one: Any = SimpleNamespace(
        name="full",
        title="full",
        run=run,
        artifact=artifact,
        data=None,
        dtype="f32",
        predicted=None,
    )
    monkeypatch.setattr(counting, "few_steps", lambda artifact, data, folder: ["/bin/true"])
    counting.count_steps(chosen, result, [one], tmp_path)
    lines = list(result.failures.values()) if requested else result.notes[:1]
    assert len(lines) == 1
    assert "was built without TCG plugins" in lines[0]
    assert bool(result.failures) == bool(requested)


@pytest.mark.parametrize("reason", [None, "tflite for aarch64 could not be installed"])
def test_predictions_are_compared_with_tflite_or_its_reason_is_noted(
    reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(device: str, data: object, expected: np.ndarray) -> dict[str, GuestFigure]:
        if reason:
            raise FarmError(reason)
        assert (device, expected.shape) == ("rpi4", (2, 2))
        return {dtype: replace(FIGURE, engine="tflite") for dtype in ("f32", "int8")}

    monkeypatch.setattr(counting, "measure_inference", measure)
    chosen = options(int8=True)
    case: Any = SimpleNamespace(model=chosen.model, batch=2)
    result = BenchResult(flow._setup(chosen, case))
    predicted = {"logits": np.zeros((2, 2), np.float32)}
    kinds = [("full", "f32"), ("full", "int8"), ("bias-only", "f32")]
    ran: Any = [
        SimpleNamespace(name=name, dtype=dtype, data=None, predicted=predicted)
        for name, dtype in kinds
    ]
    counting._count_inference(chosen, result, ran)
    rows = {(x.scheme, x.engine, x.dtype) for x in result.records}
    if reason:
        assert not rows
        assert result.notes == [f"No TFLite beside predictions: {reason}"]
    else:
        schemes = ("full, prediction", "bias-only, prediction")
        assert rows == set(product(schemes, ["tflite"], ["f32", "int8"]))


@pytest.mark.parametrize(
    ("suite", "runtimes", "schemes"),
    [("peers", (), 4), ("runtimes", ("onnx", "tflite", "tvm"), 2)],
)
def test_suite_on_an_emulated_board_runs_the_bench(
    suite: str, runtimes: tuple[str, ...], schemes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    benches: list[BenchOptions] = []
    monkeypatch.setattr(bench_board, "run_bench", lambda chosen, *_: benches.append(chosen))
    names = ("models", "batches", "schemes", "references")
    options = {**dict.fromkeys(names, ()), "suite": suite, "steps": 1, "int8": False}
    options |= {"pythons": ("pockengine-tvm=tvm/python",), "backend": None}
    bench_board._run_bench(options, board_for("rpi4", load_boards()), 1, lambda _: None)
    assert benches[0].runtimes == runtimes
    assert len(benches[0].schemes) == schemes
    assert benches[0].reference_schemes == ("full",)
    assert benches[0].pythons == {"tvm": "tvm/python"}
