"""The history of a training: a loss per step, and figures per epoch.

A training stores it in `history.jsonl` beside its checkpoints, one object per line, so a resumed
training has the same history as an uninterrupted one.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import takewhile

from pockengine.backends.training.loop import Step


@dataclass(frozen=True)
class Epoch:
    """Figures at the end of an epoch by name: `loss`, `rate`, `seconds`, `validation_loss`, ...

    `loss` is the mean over the trained rows, each before its step. `whole` is False if the training
    ended within the epoch.
    """

    number: int
    step: int
    figures: dict[str, float]
    whole: bool = True

    def __str__(self) -> str:
        figures = ", ".join(f"{label(name)} {value:.5g}" for name, value in self.figures.items())
        return f"epoch {self.number}: {figures}"


@dataclass
class History:
    """Steps and epochs of a training, in order; `stopped` is the reason of an early end."""

    steps: list[Step] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    stopped: str | None = None

    @property
    def history(self) -> dict[str, list[float]]:
        """The epochs' figures as columns by name; NaN for missing figures."""
        names = dict.fromkeys(name for epoch in self.epochs for name in epoch.figures)
        return {
            name: [epoch.figures.get(name, math.nan) for epoch in self.epochs] for name in names
        }

    def __repr__(self) -> str:
        """Show the last epochs as a table."""
        count = self.steps[-1].number if self.steps else 0
        head = f"History: {_counted(len(self.epochs), 'epoch')}, {_counted(count, 'step')}"
        names = list(self.history)
        rows = [["epoch", *map(label, names)]] if names else []
        for epoch in self.epochs[-_SHOWN:]:
            figures = (epoch.figures.get(name, math.nan) for name in names)
            rows.append([str(epoch.number), *(f"{value:.5g}" for value in figures)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        )
        return "\n".join((f"{head}; {self.stopped}" if self.stopped else head, *lines))

    def last_loss(self) -> float:
        """Return the mean loss of the last step's epoch over its rows."""
        number = self.steps[-1].epoch
        steps = list(takewhile(lambda step: step.epoch == number, reversed(self.steps)))
        rows = sum(step.rows for step in steps)
        return math.fsum(step.loss * step.rows for step in steps) / rows


_SHOWN = 10
LEGEND = {
    "loss": "training loss: the mean over the rows of the epoch, each before its own step",
    "validation_loss": "validation loss: after the epoch, the mean over the rows that fill batches",
}
"""Which rows the losses of an epoch are of, by figure."""


def legend(history: History) -> str:
    """Return the lines of LEGEND for the figures of a history."""
    return "; ".join(text for name, text in LEGEND.items() if name in history.history)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def label(name: str) -> str:
    """Return the heading of a figure of an epoch: `loss` is that of the training rows."""
    return "training loss" if name == "loss" else name.replace("_", " ")


def to_line(record: Step | Epoch) -> str:
    """Format a record of the log."""
    return json.dumps({type(record).__name__.lower(): asdict(record)})


def to_lines(history: History) -> list[str]:
    """Format a whole log: each epoch after its last step."""
    epochs = {epoch.step: to_line(epoch) for epoch in history.epochs}
    lines = []
    for step in history.steps:
        lines.append(to_line(step))
        if step.number in epochs:
            lines.append(epochs[step.number])
    return lines


def from_lines(lines: Iterable[str], last: int) -> History:
    """Read a log up to a step, skipping later, truncated or damaged records."""
    history = History()
    for line in lines:
        try:
            record = _record(line)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            break
        if isinstance(record, Step) and record.number <= last:
            history.steps.append(record)
        if isinstance(record, Epoch) and record.step <= last and record.whole:
            history.epochs.append(record)
    return history


def _record(line: str) -> Step | Epoch:
    """Parse a line; some exception for anything that `to_line` does not write."""
    ((kind, values),) = json.loads(line).items()
    made: Step | Epoch = {"step": Step, "epoch": Epoch}[kind](**values)
    numbers = {**values, **values.get("figures", {})}
    numbers.pop("figures", None)
    if not all(isinstance(number, int | float) for number in numbers.values()):
        raise TypeError("a figure is no number")
    return made
