"""A folder of checkpoints: the newest ones of a training, and its log.

The files are named as by the runner, `step-0000001000.safetensors`, so either can resume from the
other's. `history.jsonl` is synced before each checkpoint is written; `best.safetensors` is restored
by early stopping.
"""

import os
import re
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pockengine.backends.session import Session
from pockengine.backends.training.history import Epoch, History, from_lines, to_line, to_lines
from pockengine.backends.training.loop import Step
from pockengine.errors import ArtifactError, RuntimeFailure, reason_of
from pockengine.files import whole_path, write_text_whole

BEST, LOG = "best.safetensors", "history.jsonl"
_NAME = re.compile(r"step-(\d{10})\.safetensors")


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often a training is saved: every N steps, or at each epoch's end.

    The newest `keep` are retained. A kill at any moment leaves them complete. With
    `on_nan="rollback"` a non-finite loss restores the last one, and training continues with the
    batch after the bad one; with "stop" it raises TrainingDiverged, and the last one stays.
    """

    folder: Path | str
    every: int | None = None
    keep: int = 2
    on_nan: str = "stop"

    def __post_init__(self) -> None:
        whole_path(self.folder, RuntimeFailure)
        if self.keep < 1 or (self.every is not None and self.every < 1):
            raise RuntimeFailure(
                f"checkpoints every {self.every} steps, the last {self.keep} kept: both must be at "
                "least 1"
            )
        if self.on_nan not in {"stop", "rollback"}:
            raise RuntimeFailure(f'on_nan is {self.on_nan!r}; it may be "stop" or "rollback"')

    def is_due(self, step: Step) -> bool:
        """Whether a checkpoint follows this step."""
        return step.ends_epoch if self.every is None else step.number % self.every == 0

    def path(self, name: int | str) -> Path:
        """Return the path of a step's checkpoint, or of another file of the training."""
        return Path(self.folder) / (
            f"step-{name:010d}.safetensors" if isinstance(name, int) else name
        )

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, newest first."""
        found = (_NAME.fullmatch(path.name) for path in Path(self.folder).glob("step-*"))
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def load(self, session: Session) -> bool:
        """Load the newest valid checkpoint; return whether there is one.

        Invalid ones are skipped with a warning; if all are invalid, the error of the newest is
        raised.
        """
        failures = []
        for step in self.steps():
            try:
                session.load(self.path(step))
            except (RuntimeFailure, ArtifactError) as error:
                failures.append(error)
                warnings.warn(f"{error}; an older checkpoint is tried", stacklevel=2)
            else:
                return True
        if failures:
            raise failures[0]
        return False

    def check_unused(self) -> None:
        """Raise RuntimeFailure if a new training would mix with another one's checkpoints."""
        steps = self.steps()
        if steps:
            raise RuntimeFailure(
                f"{self.folder} holds checkpoints of a training, the newest of step {steps[0]}; "
                "resume=True (--resume) continues it, another folder starts a new one"
            )

    def nothing_to_resume(self) -> RuntimeFailure:
        """Return the error for a training without a checkpoint and without a learning rate."""
        fact = "holds no checkpoint" if Path(self.folder).is_dir() else "does not exist"
        return RuntimeFailure(
            f"{self.folder} {fact}, so there is no training to resume; give the folder of one, or "
            "lr (--lr) to start one there"
        )

    def check_folder(self) -> None:
        """Raise RuntimeFailure if a file has the folder's name, such as a checkpoint."""
        if Path(self.folder).is_file():
            raise RuntimeFailure(f"{self.folder} is a file; give the folder of the checkpoints")

    def history(self, last: int) -> History:
        """Read the log up to a step; trainings of the runner have none."""
        with suppress(FileNotFoundError):
            text = self.path(LOG).read_text(encoding="utf-8", errors="replace")
            return from_lines(text.splitlines(), last)
        return History()

    def save(self, session: Session) -> None:
        """Write a checkpoint, and remove the oldest."""
        session.save(self.path(session.steps))
        for step in self.steps()[self.keep :]:
            self.path(step).unlink(missing_ok=True)

    def begin(self, session: Session, history: History) -> "Log":
        """Prepare the folder: write a first checkpoint and the log so far.

        Failures of saving occur here instead of at the end.
        """
        try:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
            for left in Path(self.folder).glob("step-*.safetensors.partial*"):
                left.unlink(missing_ok=True)  # of a killed training
            write_text_whole(self.path(LOG), "".join(f"{line}\n" for line in to_lines(history)))
            log = Log(self.path(LOG))
        except OSError as error:
            raise RuntimeFailure(f"{self.folder} cannot be written: {reason_of(error)}") from error
        self.save(session)
        return log


def checkpoint_file(path: Path) -> Path:
    """Return a checkpoint, or of a training's folder the path of its best or else newest one."""
    if path.is_file():
        return path
    if (path / BEST).is_file():
        return path / BEST
    training = Checkpoints(path)
    for newest in training.steps():
        return training.path(newest)
    raise no_checkpoint(path)


def no_checkpoint(path: Path) -> RuntimeFailure:
    """Return the error for a path that has no checkpoint."""
    fact = "holds no checkpoint of a training" if path.is_dir() else "does not exist"
    return RuntimeFailure(f"{path} {fact}; give a checkpoint, or a training's folder of them")


def as_checkpoints(place: Checkpoints | Path | str | None) -> Checkpoints | None:
    """Return the Checkpoints; a path is a folder."""
    return Checkpoints(place) if isinstance(place, Path | str) else place


class Log:
    """The file that steps and epochs are logged to, one per line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: Step | Epoch) -> None:
        """Append a record; it is durable after `sync`."""
        self._file.write(f"{to_line(record)}\n")

    def sync(self) -> None:
        """Wait until all records are on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; nothing is written afterwards."""
        self._file.close()
