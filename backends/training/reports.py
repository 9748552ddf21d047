"""Callbacks that write a training's figures: CSV files, TensorBoard, MLflow, Trackio.

compiled.fit(rows, epochs=3, lr=0.1, callbacks=[TensorBoardLog("runs/first"), CsvLog("first.csv")])

Each package is imported when its callback is made. Figures of a step are `loss` and `rate`; those
of an epoch are prefixed with `epoch_`, at the number of its last step.
"""

import csv
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pockengine.backends.session import Session
from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.history import Epoch
from pockengine.backends.training.loop import Step
from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import RuntimeFailure, reason_of
from pockengine.extras import need

STEP, EPOCH = "step", "epoch"


class CsvLog(Callback):
    """A line per epoch, or with `every="step"` per step.

    A resumed training keeps the lines up to its step, and appends to them.
    """

    def __init__(self, path: Path | str, every: str = EPOCH) -> None:
        if every not in (STEP, EPOCH):
            raise RuntimeFailure(
                f'every={every!r}: a CSV file has a line for each "step" or "epoch"'
            )
        self._path, self._every = Path(path), every
        self._file: IO[str] | None = None
        self._writer: csv.DictWriter[str] | None = None

    def on_begin(self, session: Session) -> None:
        """Open the file, with the lines to keep."""
        old_rows = self._rows_until(session.steps) if session.steps else []
        try:
            self._file = self._path.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise RuntimeFailure(f"{self._path} cannot be written: {reason_of(error)}") from error
        self._writer = None
        for row in old_rows:
            self._write(row)

    def on_step(self, step: Step) -> None:
        """Write a step's line."""
        if self._every == STEP:
            self._write({STEP: step.number, EPOCH: step.epoch, LOSS: step.loss, "rate": step.rate})

    def on_epoch(self, epoch: Epoch) -> None:
        """Write an epoch's line."""
        if self._every == EPOCH:
            self._write({STEP: epoch.step, EPOCH: epoch.number, **epoch.figures})

    def on_end(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _rows_until(self, last: int) -> list[dict[str, Any]]:
        try:
            with self._path.open(encoding="utf-8", newline="") as file:
                return [row for row in csv.DictReader(file) if int(row[STEP]) <= last]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            raise RuntimeFailure(
                f"{self._path} is not a log of this training: {reason_of(error)}; move it away"
            ) from error

    def _write(self, row: dict[str, Any]) -> None:
        assert self._file is not None  # on_begin has opened it
        if self._writer is None:
            self._writer = csv.DictWriter(self._file, list(row))
            self._writer.writeheader()
        self._writer.writerow(row)
        self._file.flush()


class TensorBoardLog(Callback):
    """Scalars of each step and epoch, in a folder for `tensorboard --logdir`."""

    def __init__(self, folder: Path | str) -> None:
        need("TensorBoardLog", "tensorboard")
        self._folder = Path(folder)
        self._writer: Any = None

    def on_begin(self, session: Session) -> None:
        """Open a file of events."""
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(self._folder))

    def on_step(self, step: Step) -> None:
        """Write the step's scalars."""
        self._add(step.number, _of_step(step))

    def on_epoch(self, epoch: Epoch) -> None:
        """Write the epoch's scalars."""
        self._add(epoch.step, _of_epoch(epoch))
        self._writer.flush()

    def on_end(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()

    def _add(self, step: int, figures: dict[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._writer.add_event(
            Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        )


class MlflowLog(Callback):
    """Metrics of each step and epoch in MLflow's active run, or in one that `run` describes.

    `run` are the arguments of `mlflow.start_run`: `MlflowLog(run_name="first")`. A run that was
    active before stays active.
    """

    def __init__(self, **run: Any) -> None:
        need("MlflowLog", "mlflow")
        self._run, self._own, self._lost = run, False, False
        self._before: BaseException | None = None

    def on_begin(self, session: Session) -> None:
        """Start a run unless one is active; RuntimeFailure if MLflow cannot start one."""
        import mlflow

        self._lost, self._before = False, sys.exc_info()[1]
        if self._run or mlflow.active_run() is None:
            try:
                mlflow.start_run(**self._run)
            except Exception as error:
                raise RuntimeFailure(f"MLflow starts no run{_where()}: {_short(error)}") from error
            self._own = True

    def on_step(self, step: Step) -> None:
        """Log the step's metrics."""
        self._log(step.number, _of_step(step))

    def on_epoch(self, epoch: Epoch) -> None:
        """Log the epoch's metrics."""
        self._log(epoch.step, _of_epoch(epoch))

    def on_end(self) -> None:
        """End the run that this callback started; as failed if an exception ends the training."""
        import mlflow

        if self._own:
            self._own = False
            failed = sys.exc_info()[1] is not self._before
            with self._without():
                mlflow.end_run("FAILED" if failed else "FINISHED")

    def _log(self, step: int, figures: dict[str, float]) -> None:
        import mlflow

        if not self._lost:
            with self._without():
                mlflow.log_metrics(figures, step=step)

    @contextmanager
    def _without(self) -> Iterator[None]:
        """Continue the training without MLflow if that fails: logging must not stop the work."""
        try:
            yield
        except Exception as error:
            self._lost = True
            text = (
                f"MLflow takes no more figures{_where()}: {_short(error)}; the training continues"
            )
            warnings.warn(text, stacklevel=2)


class TrackioLog(Callback):
    """Metrics of each step and epoch in a run of Trackio's project `project`.

    `run` are further arguments of `trackio.init`: `TrackioLog("cats", name="first")`.
    """

    def __init__(self, project: str, **run: Any) -> None:
        need("TrackioLog", "trackio")
        self._run: dict[str, Any] = {"project": project, "embed": False, **run}

    def on_begin(self, session: Session) -> None:
        """Start a run; RuntimeFailure if Trackio cannot start one."""
        import trackio

        try:
            trackio.init(**self._run)
        except Exception as error:
            raise RuntimeFailure(f"Trackio starts no run: {_short(error)}") from error

    def on_step(self, step: Step) -> None:
        """Log the step's metrics."""
        self._log(step.number, _of_step(step))

    def on_epoch(self, epoch: Epoch) -> None:
        """Log the epoch's metrics."""
        self._log(epoch.step, _of_epoch(epoch))

    def on_end(self) -> None:
        """Finish the run after Trackio has stored all metrics."""
        import trackio

        trackio.finish()

    def _log(self, step: int, figures: dict[str, float]) -> None:
        import trackio

        trackio.log(figures, step=step)


def _where() -> str:
    """Describe where MLflow stores its runs."""
    import mlflow

    return f" at {mlflow.get_tracking_uri()}"


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _of_step(step: Step) -> dict[str, float]:
    return {LOSS: step.loss, "rate": step.rate}


def _of_epoch(epoch: Epoch) -> dict[str, float]:
    return {f"epoch_{name}": value for name, value in epoch.figures.items()}
