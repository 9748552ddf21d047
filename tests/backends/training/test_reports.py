"""Callbacks that report figures: CSV, TensorBoard, MLflow, and the user's own objects."""

import csv
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import pockengine
from pockengine.backends.training.history import Epoch
from pockengine.backends.training.loop import Step
from pockengine.errors import RuntimeFailure, TrainingDiverged
from pockengine.tests.backends.training.nets import compiled, data

TRAIN = data(22)
COURSE: dict[str, Any] = {"lr": 0.02, "validation": data(8, seed=1)}


def rows(path: Path) -> list[dict[str, float]]:
    with path.open(encoding="utf-8") as file:
        return [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]


def test_a_csv_file_has_each_epoch_or_step_and_goes_on(tmp_path: Path) -> None:
    net, place = compiled(), tmp_path / "kept"
    logs = [pockengine.CsvLog(tmp_path / "epochs.csv")]
    logs += [pockengine.CsvLog(tmp_path / "steps.csv", every="step")]
    net.fit(TRAIN, epochs=1, **COURSE, callbacks=logs, checkpoint=place)
    history = net.fit(TRAIN, epochs=2, **COURSE, callbacks=logs, checkpoint=place, resume=True)

    epochs, steps = rows(tmp_path / "epochs.csv"), rows(tmp_path / "steps.csv")
    assert epochs == [{"step": e.step, "epoch": e.number, **e.figures} for e in history.epochs]
    assert {"validation_loss", "rate", "seconds"} < epochs[0].keys()
    assert [row["step"] for row in steps] == list(range(1, 11))
    assert [row["loss"] for row in steps] == [step.loss for step in history.steps]
    with pytest.raises(RuntimeFailure, match='a line for each "step" or "epoch"'):
        pockengine.CsvLog(tmp_path / "x.csv", every="batch")
    (tmp_path / "epochs.csv").write_text("no,log\n1,2\n")
    with pytest.raises(RuntimeFailure, match="is not a log of this training"):
        net.fit(TRAIN, epochs=3, callbacks=logs, checkpoint=place, resume=True)


def test_tensorboard_reads_the_scalars(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = pockengine.TensorBoardLog(tmp_path / "runs")
    history = compiled().fit(TRAIN, epochs=2, **COURSE, callbacks=[log])

    events = EventAccumulator(str(tmp_path / "runs"))
    events.Reload()
    losses = [(event.step, event.value) for event in events.Scalars("loss")]
    assert losses == [(step.number, pytest.approx(step.loss)) for step in history.steps]
    judged = [(event.step, event.value) for event in events.Scalars("epoch_validation_loss")]
    expected = [(e.step, pytest.approx(e.figures["validation_loss"])) for e in history.epochs]
    assert judged == expected


def test_mlflow_keeps_the_metrics(tmp_path: Path) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    history = compiled().fit(
        TRAIN, epochs=2, **COURSE, callbacks=[pockengine.MlflowLog(run_name="first")]
    )

    assert mlflow.active_run() is None
    run = mlflow.last_active_run()
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    losses = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
    assert [(m.step, m.value) for m in losses] == [(s.number, s.loss) for s in history.steps]
    assert run.data.metrics["epoch_rate"] == 0.02


def test_trackio_keeps_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio", reason="needs the extra trackio")
    history = compiled().fit(
        TRAIN, epochs=2, **COURSE, callbacks=[pockengine.TrackioLog("nets", name="first")]
    )

    assert [run.name for run in trackio.Api().runs("nets")] == ["first"]
    rows = import_module("trackio.sqlite_storage").SQLiteStorage.get_logs("nets", "first")
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    assert losses == [(step.number, step.loss) for step in history.steps]


class Server:
    """The MLflow functions that the callback uses; after `most` metrics it stops answering."""

    def __init__(self, most: int = 99) -> None:
        self.most, self.steps, self.ends = most, list[int](), list[str]()

    def start_run(self, **_: object) -> None:
        self._answer()

    def active_run(self) -> None:
        return None

    def get_tracking_uri(self) -> str:
        return "http://lab:5000"

    def log_metrics(self, figures: dict[str, float], step: int) -> None:
        self._answer()
        self.steps.append(step)

    def end_run(self, status: str) -> None:
        self.ends.append(status)

    def _answer(self) -> None:
        if len(self.steps) == self.most:
            raise ConnectionError("nobody is there")


def logged(server: Server, monkeypatch: pytest.MonkeyPatch) -> pockengine.MlflowLog:
    monkeypatch.setitem(sys.modules, "mlflow", server)
    monkeypatch.setattr("pockengine.backends.training.reports.need", lambda *_: None)
    return pockengine.MlflowLog()


def test_a_server_that_stops_answering_does_not_end_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = logged(server := Server(most=2), monkeypatch)
    with pytest.warns(UserWarning, match="no more figures at http://lab:5000.*nobody is there"):
        history = compiled().fit(TRAIN, epochs=1, lr=0.02, callbacks=[log])

    assert len(history.steps) == 5
    assert (server.steps, server.ends) == ([1, 2], ["FINISHED"])
    with pytest.raises(RuntimeFailure, match="MLflow starts no run at http://lab:5000"):
        compiled().fit(TRAIN, epochs=1, lr=0.02, callbacks=[logged(Server(most=0), monkeypatch)])


def test_a_run_says_whether_its_training_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logged(server := Server(), monkeypatch)
    try:
        raise KeyError("an error of before says nothing")
    except KeyError:
        compiled().fit(TRAIN, epochs=1, lr=0.02, callbacks=[log])
    with pytest.raises(TrainingDiverged):
        compiled().fit(TRAIN, epochs=1, lr=1e30, callbacks=[log])

    assert server.ends == ["FINISHED", "FAILED"]


class Plain:
    """A user's object without a PockEngine base class."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_step(self, step: Step) -> None:
        self.seen.append(f"step {step.number}")

    def on_epoch(self, epoch: Epoch) -> bool:
        self.seen.append(f"epoch {epoch.number}")
        return True

    def on_end(self) -> None:
        self.seen.append("end")


def test_a_plain_object_may_watch_and_end_a_training() -> None:
    plain = Plain()
    history = compiled().fit(TRAIN, epochs=3, lr=0.02, callbacks=plain)

    assert plain.seen == [*(f"step {number}" for number in range(1, 6)), "epoch 1", "end"]
    assert history.stopped == "Plain ended it after step 5"
    for wrong, words in (
        ([3], "int is no callback"),
        ("log", "give a list of pockengine.Callback"),
    ):
        with pytest.raises(RuntimeFailure, match=words):
            compiled().fit(TRAIN, epochs=1, lr=0.02, callbacks=wrong)
