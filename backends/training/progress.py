"""Progress display of a training: a bar with examples per second, time left and memory."""

import resource
import time
from dataclasses import dataclass

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pockengine.backends.session import Session
from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.history import Epoch
from pockengine.backends.training.loop import Step
from pockengine.terminal import PlainConsole

_WIDTH = 120
_KIB = 1024


def progress_callback(show: bool | None, steps: int | None) -> tuple[Callback, ...]:
    """Return the progress display if requested, or by default (None) if this is a terminal."""
    console = PlainConsole(_WIDTH)
    shown = console.is_terminal if show is None else show
    return (Bar(console, steps),) if shown else ()


@dataclass(frozen=True)
class Unit:
    """Progress unit, and units per row."""

    name: str = "examples"
    per_row: float = 1.0


EXAMPLES = Unit()


class Bar(Callback):
    """A bar over all steps, with a line per epoch above it.

    If the output is not a terminal, only the lines are printed.
    """

    def __init__(self, console: PlainConsole, steps: int | None, unit: Unit = EXAMPLES) -> None:
        self._progress = Progress(
            TextColumn("epoch {task.fields[epoch]}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("batch loss {task.fields[loss]:.4g}", markup=False),
            TextColumn("{task.fields[speed]:.4g} {task.fields[unit]}/s", markup=False),
            TimeRemainingColumn(),
            TextColumn("{task.fields[memory]:.0f} MiB", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(
            "training",
            total=steps,
            epoch=1,
            loss=float("nan"),
            speed=0.0,
            memory=0.0,
            unit=unit.name,
        )
        self._unit = unit
        self._console = console
        self._rows, self._begun = 0.0, 0.0

    def on_begin(self, session: Session) -> None:
        """Show the bar at the training's position."""
        self._begun = time.perf_counter()
        self._progress.update(self._task, completed=session.steps)
        self._progress.start()

    def on_step(self, step: Step) -> None:
        """Move the bar."""
        self._rows += step.rows * self._unit.per_row
        self._progress.update(
            self._task,
            completed=step.number,
            epoch=step.epoch,
            loss=step.loss,
            speed=self._rows / max(time.perf_counter() - self._begun, 1e-9),
            memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB,
        )

    def on_epoch(self, epoch: Epoch) -> None:
        """Print the epoch's figures."""
        self._console.print(str(epoch))

    def on_end(self) -> None:
        """Remove the bar."""
        self._progress.stop()
