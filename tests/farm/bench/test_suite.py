"""The suite of peer engines: measurements, checks, records, and their page."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from pockengine.backends.peaks import ABOVE, WHY_ABOVE, Peaks
from pockengine.farm.bench import running as bench_running
from pockengine.farm.bench.suite import Measurement, SuiteResult, engines_for, measure
from pockengine.farm.bench.suite_table import (
    best_peer,
    lines_table,
    own_line,
    records_of,
    schemes_table,
    summary_table,
)
from pockengine.farm.cli.bench_suite import measurements, peers_suite
from pockengine.farm.cli.suites import Choice, run_suite

PEAKS = Peaks(1, 100.0, {1 << 20: 100.0, 1 << 24: 50.0, 1 << 28: 20.0})
MODEL = "cnn-16"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SuiteResult:
    schemes = {"full": "full", "bias-only": "bias-only"}
    engines = ("torch-eager", "torch-eager-cl-malloc", "ort-training")
    with pytest.MonkeyPatch.context() as patch:
        missing = {"ort-training": "not here"}
        patch.setattr(bench_running, "why_missing", lambda engine: missing.get(engine.name))
        patch.setattr(bench_running, "TURN_MS", 1.0)
        measurement = Measurement(MODEL, 2, engines, schemes, 1, 1, PEAKS, bf16=True)
        return measure(measurement, tmp_path_factory.mktemp("suite"))


def test_every_engine_is_checked_and_timed(result: SuiteResult) -> None:
    timed = {(line.engine, line.scheme) for line in result.lines}
    # A CPU without bf16 has a note in place of this line.
    assert (("pockengine-bf16", "full") in timed) != ("pockengine-bf16" in result.missing)
    assert timed - {("pockengine-bf16", "full")} == {
        ("pockengine", "full"),
        ("pockengine", "bias-only"),
        ("torch-eager", "full"),
        ("torch-eager-cl-malloc", "full"),
    }
    assert result.missing["ort-training"] == "not here"
    for line in result.lines:
        assert 0 < line.timing.min <= line.timing.median
        assert line.max_rel_error < (1e-3 if line.engine != "pockengine-bf16" else 2e-2)
        assert line.first_step_ms > 0
        assert line.peak_rss_bytes > 2**20
    assert best_peer(result).engine.startswith("torch-eager")
    assert result.work.flops > 0
    assert result.work.roofline_ms > 0


def test_figures_become_records_and_tables(result: SuiteResult) -> None:
    records = records_of(result, 1, PEAKS)
    steps = [record for record in records if record.metric == "step_ms"]
    assert [(record.engine, record.scheme) for record in steps] == [
        (line.engine, line.scheme) for line in result.lines
    ]
    arena = {x.scheme: x.value for x in records if x.metric == "arena_bytes"}
    bound = {x.scheme: x.value for x in records if x.metric == "arena_bound_bytes"}
    assert arena["bias-only"] < arena["full"] < 1.05 * bound["full"]
    live = {x.scheme: x.samples for x in records if x.metric == "arena_bound_bytes"}
    assert {scheme: max(bytes_) for scheme, bytes_ in live.items()} == bound
    assert lines_table(result, PEAKS).row_count == 6
    on_busy_machine = lines_table(result, replace(PEAKS, gflops=1e-3))
    names, shares = (on_busy_machine.columns[index].cells for index in (0, 5))
    share = dict(zip(names, shares, strict=True))
    assert share["pockengine full"] == ABOVE
    assert share.get("pockengine-bf16 full", "-") == "-"  # the peak is of f32
    assert WHY_ABOVE in str(on_busy_machine.caption)
    assert summary_table([result]).row_count == 1
    assert schemes_table([result]).row_count >= 2
    assert own_line(result) in result.lines
    assert {record.dtype for record in steps if record.engine == "pockengine"} == {"f32"}


def test_page_has_all_tables_and_escapes_text(result: SuiteResult, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from pockengine.farm.report.memory import blocks, draw_memory
    from pockengine.farm.report.page import write_report

    for compiled in result.compiled.values():
        stored = blocks(compiled.program.entries["train"])
        assert max(one.offset + one.size for one in stored) <= compiled.artifact.arena_bytes
        assert {"input", "saved for backward", "gradient"} <= {one.kind for one in stored}
    result.missing["evil"] = "<script>"
    picture = draw_memory(result, tmp_path)
    page = write_report([result], PEAKS, tmp_path).read_text()
    assert picture.name in page
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert {path.name for path in tmp_path.glob("*.svg")} == {
        "bars.svg",
        "roofline.svg",
        picture.name,
    }


def test_plan_is_every_remaining_model_and_batch() -> None:
    done = frozenset({("mcunet-128", 1), ("llama-15m-256", 4)})
    planned = measurements(Choice(threads=2, quick=True, done=done), PEAKS)
    result = [(measurement.model, measurement.batch) for measurement in planned]
    assert len(result) == 12
    assert not done & set(result)
    assert all("torch-eager" in engines_for(model) for model, _ in result)
    engines = {engine for measurement in planned for engine in measurement.engines}
    assert not any("compile" in engine for engine in engines)


def test_a_suite_of_which_nothing_is_left_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    done = frozenset({("mcunet-128", 1)})
    choice = Choice(("mcunet-128",), (1,), threads=2, quick=True, done=done)
    assert run_suite(peers_suite(choice, PEAKS), MagicMock()) == 0
    assert "nothing is left to measure" in capsys.readouterr().out
