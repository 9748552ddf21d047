"""The suite of runtimes: measurements, checks, records, missing runtimes."""

from pathlib import Path
from typing import Any

import pytest

from pockengine.errors import FarmError
from pockengine.farm.bench import running as bench_running
from pockengine.farm.bench.check import compare
from pockengine.farm.bench.runtimes import RuntimesMeasurement, measure_runtimes
from pockengine.farm.bench.runtimes_table import runtimes_table
from pockengine.farm.bench.suite import SuiteResult
from pockengine.farm.bench.suite_table import records_of
from pockengine.farm.cli.bench_runtimes import interpreters, plan
from pockengine.farm.cli.suites import Choice
from pockengine.farm.references.worker import why_runtime_missing

MODEL = "cnn-16"
HERE = tuple(name for name in ("onnx", "tflite") if why_runtime_missing(name) is None)
SCHEMES = {"full": "full", "bias-only": "bias-only"}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SuiteResult:
    with pytest.MonkeyPatch.context() as patch:
        missing = {"tvm": "not here"}
        patch.setattr(bench_running, "why_runtime_missing", missing.get)
        patch.setattr(
            bench_running,
            "why_missing",
            lambda engine: {"ort-training": "nor this"}.get(engine.name),
        )
        patch.setattr(bench_running, "TURN_MS", 1.0)
        measurement = RuntimesMeasurement(
            MODEL, 4, SCHEMES, (*HERE, "tvm"), ("ort-training",), threads=1, rounds=1
        )
        return measure_runtimes(measurement, tmp_path_factory.mktemp("runtimes"))


@pytest.mark.nightly
def test_every_runtime_is_checked_and_timed_under_every_scheme(result: SuiteResult) -> None:
    engines = ("pockengine", "torch-eager", *(f"pockengine-{name}" for name in HERE))
    timed = [(line.engine, line.scheme) for line in result.lines]
    assert set(timed) == {(engine, scheme) for engine in engines for scheme in SCHEMES}
    assert len(timed) == len(set(timed))
    for line in result.lines:
        assert 0 < line.timing.min <= line.timing.median
        assert line.max_rel_error < 1e-3
        assert line.first_step_ms > 0  # any single step may be the slowest on a busy machine
        assert line.peak_rss_bytes > 2**20


@pytest.mark.nightly
def test_missing_runtimes_have_a_line_with_the_reason(result: SuiteResult) -> None:
    assert result.missing == {
        f"{engine} {scheme}": reason
        for engine, reason in (("pockengine-tvm", "not here"), ("ort-training", "nor this"))
        for scheme in SCHEMES
    }
    assert runtimes_table(result, 1).row_count == len(result.lines) + 4


@pytest.mark.nightly
def test_figures_become_records(result: SuiteResult) -> None:
    records = records_of(result, 1)
    steps = [record for record in records if record.metric == "step_ms"]
    assert [(x.engine, x.scheme) for x in steps] == [(x.engine, x.scheme) for x in result.lines]
    versions = {x.engine: x.engine_version for x in steps}
    assert all(", " in versions[f"pockengine-{name}"] for name in HERE)


def test_wrong_results_have_no_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "onnx" not in HERE:
        pytest.skip("onnxruntime is not installed; Bazel brings it")

    def compare_wrongly(losses: list[float], *arguments: Any, **options: Any) -> object:
        return compare([1.01 * loss for loss in losses], *arguments, **options)

    measurement = RuntimesMeasurement(MODEL, 2, {"full": "full"}, ("onnx",), (), 1, 1)
    monkeypatch.setattr(bench_running, "compare", compare_wrongly)
    with pytest.raises(FarmError, match="wrong numbers: the loss of step 1 is off by"):
        measure_runtimes(measurement, tmp_path)


def test_plan_has_two_nets_and_two_schemes() -> None:
    everything = plan(Choice(threads=2))
    assert [(x.model, x.batch) for x in everything] == [
        ("mobilenet_v2-0.35-96", 4),
        ("vit_tiny-64", 4),
    ]
    assert [x.schemes["sparse"].endswith(".toml") for x in everything] == [True, False]
    assert all(x.backends == ("onnx", "tflite", "tvm") for x in everything)
    assert "ort-training" in everything[0].engines
    assert "ort-training" not in everything[1].engines


def test_engines_and_interpreters_can_be_selected() -> None:
    pythons = interpreters(["pockengine-tvm=tvm/bin/python", "ort-training=ort/bin/python"])
    engines = ("pockengine-tvm", "jax-jit")
    first = plan(Choice(engines=engines, schemes=("full",), pythons=pythons))[0]
    assert (first.backends, first.engines) == (("tvm",), ("jax-jit",))
    assert first.pythons == {"tvm": "tvm/bin/python", "ort-training": "ort/bin/python"}
    with pytest.raises(FarmError, match="ENGINE=INTERPRETER, not 'tvm'"):
        interpreters(["tvm"])
    with pytest.raises(FarmError, match="unknown reference engine 'nonsense'"):
        plan(Choice(engines=("nonsense",)))
