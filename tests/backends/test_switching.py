"""`backend="auto"` selects the fastest backend of the device, reports why, and trains no weight."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pockengine
from pockengine.backends import switching
from pockengine.backends.artifact import load_artifact
from pockengine.backends.protocol import BackendOptions
from pockengine.backends.session import Session
from pockengine.backends.switching_report import (
    MEASURED,
    MODELLED,
    BackendCandidate,
    Switching,
    read_switching,
    settle,
)
from pockengine.devices import Device, load_device
from pockengine.errors import CompileError
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.toy import DEVICE
from pockengine.tests.backends.toy.session import ToySession
from pockengine.tests.compiler.small_nets import residual_net

BOTH = replace(load_device("host"), other_backends=("toy",))


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "ROUNDS", 3)


def test_the_faster_backend_is_chosen_and_both_are_reported(tmp_path: Path) -> None:
    graph = residual_net()
    before = {name: param.data.copy() for name, param in graph.params.items()}

    compiled = pockengine.compile(graph, None, device=BOTH, backend="auto", folder=tmp_path / "net")

    report = compiled.switching
    assert report is not None
    assert (report.chosen, report.unit, compiled.artifact.backend) == ("c", MEASURED, "c")
    c, toy = report.candidates
    assert c.cost is not None
    assert toy.cost is not None
    assert c.cost < toy.cost
    assert report.runner_up == toy
    assert report.reason == f"c: toy, the runner-up, takes {toy.cost / c.cost:.2f}x"
    assert load_artifact(tmp_path / "net").switching == report
    with compiled.session() as session:
        assert session.steps == 0
        for name, data in before.items():
            np.testing.assert_array_equal(session.get_param(name), data)
            np.testing.assert_array_equal(graph.params[name].data, data)


def test_a_named_backend_has_no_report() -> None:
    assert pockengine.compile(residual_net(), None, device=DEVICE).switching is None


def test_what_a_candidate_lacks_is_its_reason() -> None:
    device = replace(BOTH, other_backends=("toy", "absent"))
    report = pockengine.compile(residual_net(), None, device=device, backend="auto").switching
    assert report is not None
    assert "needs the backend 'absent'" in report.candidates[2].left_out
    assert report.lines()[-1].startswith("  absent: device host needs the backend")


def test_what_is_emulated_is_no_candidate() -> None:
    device = replace(BOTH, other_backends=("gpu", "toy"))
    report = pockengine.compile(residual_net(), None, device=device, backend="auto").switching
    assert report is not None
    assert [each.backend for each in report.candidates] == ["c", "toy"]


def test_a_candidate_of_other_losses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(step: Callable[..., dict[str, np.ndarray]]) -> Callable[..., object]:
        def run(self: Session, *args: object) -> dict[str, np.ndarray]:
            results = step(self, *args)
            return {**results, "loss": results["loss"] * np.float32(1.1)}

        return run

    monkeypatch.setattr(ToySession, "train_step", wrong(ToySession.train_step))
    report = pockengine.compile(residual_net(), None, device=BOTH, backend="auto").switching
    assert report is not None
    assert report.runner_up is None
    assert "the losses of its first steps are" in report.candidates[1].left_out
    assert report.reason == "c: no other backend can be taken"


def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10000, 130))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    report = pockengine.compile(residual_net(), None, device=BOTH, backend="auto").switching
    assert report is not None
    assert report.candidates[1].left_out.startswith("not tried: the others took more than 120 s")
    assert report.candidates[0].cost is not None  # one step is always taken


def test_a_device_elsewhere_is_modelled(monkeypatch: pytest.MonkeyPatch) -> None:
    device = replace(load_device("rpi4"), other_backends=("toy",))
    report = pockengine.compile(residual_net(), None, device=device, backend="auto").switching
    assert report is not None
    assert (report.unit, report.chosen) == (MODELLED, "c")
    c, toy = report.candidates
    assert c.cost is not None
    assert toy.cost is not None
    assert 0 < c.cost < toy.cost


def test_a_gpu_elsewhere_is_left_out_of_the_processors_model() -> None:
    device = load_device("jetson-orin").on("c")
    compiled = pockengine.compile(residual_net(), None, device=device, backend="auto")
    report = compiled.switching
    assert report is not None
    assert (report.unit, report.chosen) == (MODELLED, "c")
    reasons = {row.backend: row.left_out for row in report.candidates}
    assert reasons["cuda"] == "a GPU is measured where it is, and not modelled"


def test_without_a_backend_all_reasons_are_listed() -> None:
    def refuse(**_: object) -> None:
        raise CompileError("too large")

    with pytest.raises(CompileError, match=r"no backend for this program: c: too large; toy: too"):
        switching.choose_backend(refuse, BOTH, BackendOptions())


def test_the_devices_own_is_kept_unless_another_gains() -> None:
    def chosen(*costs: float | None) -> Switching:
        rows = [BackendCandidate(name, cost) for name, cost in zip("abc", costs, strict=True)]
        return settle(MEASURED, rows)

    assert chosen(100.0, 98.0, None).chosen == "a"
    assert "it is the device's own, and b gains less than 3 %" in chosen(100.0, 98.0, None).reason
    assert chosen(100.0, 90.0, 80.0).chosen == "c"
    assert chosen(None, 90.0, 80.0).chosen == "c"
    with pytest.raises(ValueError, match="every candidate"):
        chosen(None, None, None)


REPORT = settle(MEASURED, [BackendCandidate("c", 1.5), BackendCandidate("toy", None, "is absent")])


def _damaged() -> Iterator[object]:
    table = REPORT.table()
    yield []
    yield {**table, "unit": "hours"}
    yield {**table, "chosen": "toy"}
    yield {**table, "candidates": [3]}
    yield {**table, "candidates": [{"backend": "c", "cost": float("inf"), "left_out": ""}]}
    yield {**table, "candidates": [{"backend": "c", "cost": True, "left_out": ""}]}


def test_a_report_is_read_as_it_was_written() -> None:
    assert read_switching(REPORT.table()) == REPORT
    assert read_switching(None) is None


@pytest.mark.parametrize("table", list(_damaged()))
def test_a_damaged_report_is_refused(table: object) -> None:
    with pytest.raises(ValueError, match=r"switching|candidate"):
        read_switching(table)


def test_an_update_of_collected_batches_is_a_part_of_the_step() -> None:
    device: Device = BOTH
    graph = residual_net()
    compiled = pockengine.compile(graph, None, device=device, backend="auto", micro_batches=2)
    assert compiled.switching is not None
    assert compiled.switching.runner_up is not None
    with compiled.session() as session:
        session.train_step(draw(graph, 0), 0.1)
