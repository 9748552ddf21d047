"""`pockengine train ARTIFACT --data ROWS`: train on this machine, with checkpoints."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from pockengine.backends.augmentation import Augmentation
from pockengine.backends.training.checkpoints import Checkpoints
from pockengine.backends.training.history import History, legend
from pockengine.backends.training.options import FitOptions
from pockengine.cli.duty import duty_options
from pockengine.cli.option_fields import fit_options
from pockengine.cli.options import OutputFile, console, json_option, make_folder_of, print_json
from pockengine.cli.rows import (
    Read,
    data_options,
    find_metrics,
    metric_option,
    threads_option,
)
from pockengine.loaded import load

KEEP, ON_NAN = 2, "stop"


@dataclass(frozen=True)
class TrainingFiles:
    """Where and how often a training is saved."""

    folder: Path | None
    every: int | None
    keep: int
    on_nan: str

    def checked(self, resume: bool) -> "TrainingFiles":
        """Return self; a usage error names options of checkpoints without their folder."""
        given = {
            "--resume": resume,
            "--save-every": self.every is not None,
            "--keep": self.keep != KEEP,
            "--on-nan": self.on_nan != ON_NAN,
        }
        if self.folder is None and any(given.values()):
            names = ", ".join(name for name, used in given.items() if used)
            raise click.UsageError(f"{names} without --checkpoint; give the folder of checkpoints")
        return self

    def checkpoints(self) -> Checkpoints | None:
        """Return the Checkpoints for `fit`."""
        if self.folder is None:
            return None
        return Checkpoints(self.folder, self.every, self.keep, self.on_nan)


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@data_options
@fit_options(*("epochs", "steps", "lr", "schedule", "warmup", "total", "batch", "seed", "resume"))
@click.option("--shuffle/--in-order", default=True, show_default=True)
@click.option("--flip", is_flag=True, help="Mirror half of the pictures.")
@click.option(
    "--crop", default=0, type=click.IntRange(0), help="Shift pictures by up to this many pixels."
)
@click.option(
    "--validation", multiple=True, metavar="FILE", help="Validation rows, evaluated each epoch."
)
@metric_option
@click.option(
    "--patience", type=click.IntRange(1), help="Stop after this many epochs without improvement."
)
@click.option(
    "--checkpoint", "folder", type=click.Path(path_type=Path), help="Folder of checkpoints."
)
@click.option("--save-every", "every", type=click.IntRange(1), help="Steps; default: an epoch.")
@click.option(
    "--keep",
    default=KEEP,
    show_default=True,
    type=click.IntRange(1),
    help="Number of checkpoints to keep.",
)
@click.option(
    "--on-nan", default=ON_NAN, show_default=True, type=click.Choice(["stop", "rollback"])
)
@click.option("--out", type=OutputFile(), help="Write the weights, as export does.")
@duty_options
@threads_option
@json_option
def train(
    artifact: Path,
    files: Sequence[str],
    read: Read,
    validation: Sequence[str],
    metrics: Sequence[str],
    patience: int | None,
    folder: Path | None,
    every: int | None,
    keep: int,
    on_nan: str,
    out: Path | None,
    as_json: bool,
    course: FitOptions,
    flip: bool,
    crop: int,
    **others: Any,
) -> None:
    """Train ARTIFACT, compiled for this machine, and print each epoch's figures.

    A kill at any moment leaves complete checkpoints, from which --resume continues bit for bit.
    """
    _check_length(course)
    places = TrainingFiles(folder, every, keep, on_nan).checked(course.resume)
    loaded = load(artifact)
    _announce(folder, out)
    history = loaded.fit(
        read(files),
        options=course,
        augment=Augmentation(flip, crop),
        validation=read(validation) if validation else None,
        metrics=find_metrics(metrics),
        early_stopping=patience,
        checkpoint=places.checkpoints(),
        progress=not as_json,
        **others,
    )
    if out is not None:
        loaded.save_weights(loaded.trained, make_folder_of(out))
    _report(history, folder, out, as_json)


def _check_length(course: FitOptions) -> None:
    if (course.epochs is None) == (course.steps is None):
        raise click.UsageError("give --epochs or --steps, and not both")


def _announce(folder: Path | None, out: Path | None) -> None:
    """Warn before a training whose weights nothing saves."""
    if folder is None and out is None:
        click.echo("the weights will not be saved; give --out FILE or --checkpoint PATH", err=True)


def _report(history: History, folder: Path | None, out: Path | None, as_json: bool) -> None:
    if as_json:
        print_json(_facts(history, folder, out))
        return
    terminal = console()
    terminal.print(repr(history))
    terminal.print(legend(history))
    for place in filter(None, (folder, out)):
        terminal.print(f"written {place}", soft_wrap=True)


def _facts(history: History, folder: Path | None, out: Path | None) -> dict[str, Any]:
    return {
        "steps": history.steps[-1].number if history.steps else 0,
        "epochs": [asdict(epoch) for epoch in history.epochs],
        "stopped": history.stopped,
        "checkpoint": None if folder is None else str(folder),
        "out": None if out is None else str(out),
    }
