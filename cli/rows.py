"""Data and weights for `train`, `evaluate` and `predict` on the command line."""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np

from pockengine.backends.training.checkpoints import BEST, Checkpoints, no_checkpoint
from pockengine.backends.training.pictures import SUFFIXES, Pictures
from pockengine.errors import FinetuneError
from pockengine.finetune.data_files import read_arrays, read_npy
from pockengine.loaded import Loaded

Rows = dict[str, np.ndarray]
Read = Callable[[Sequence[str]], Rows | Pictures]

_data_option = click.option(
    "--data",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|FOLDER|NAME=FILE.npy",
    help="Rows [N, ...] by inputs' names: .safetensors, .npz, NAME=FILE.npy, a folder of NAME.npy; "
    "or a folder of pictures by class.",
)
checkpoint_option = click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="A checkpoint, or a training's folder; default: the compiled weights.",
)
metric_option = click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="accuracy|PACKAGE.MODULE:FUNCTION",
    help="A function of prediction and target, both arrays of rows.",
)
threads_option = click.option("--threads", default=1, show_default=True, type=click.IntRange(1))


def numbers(text: str) -> tuple[float, ...]:
    """Parse comma-separated numbers; a usage error names an invalid one."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no list of numbers, as 0.485,0.456,0.406") from error


mean_option = click.option(
    "--mean", type=numbers, default="0", help="Subtracted from pixels of 0 to 1 of pictures."
)
std_option = click.option(
    "--std", type=numbers, default="1", help="Divisor of pixels, after --mean."
)


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `files`, the option --data, and `read`, which reads such files.

    `read` returns rows, or pictures normalized by --mean and --std.
    """

    @wraps(command)
    def wrapped(*args: Any, mean: Sequence[float], std: Sequence[float], **others: Any) -> Any:
        return command(*args, read=partial(_read, mean=mean, std=std), **others)

    for option in reversed((_data_option, mean_option, std_option)):
        wrapped = option(wrapped)
    return wrapped


def _read(files: Sequence[str], mean: Sequence[float], std: Sequence[float]) -> Rows | Pictures:
    if len(files) == 1 and _holds_pictures(Path(files[0])):
        return Pictures(files[0], mean, std)
    if (*mean, *std) != (0, 1):
        raise click.UsageError("--mean and --std are for folders of pictures; leave them out")
    return read_rows(files)


def _holds_pictures(folder: Path) -> bool:
    """Whether this is a folder of class folders, and not one of arrays."""
    names = (path.suffix.lower() for path in folder.glob("*/**/*"))
    return not any(folder.glob("*.npy")) and any(name in SUFFIXES for name in names)


def read_rows(files: Sequence[str]) -> Rows:
    """Read data files into arrays by name, without unpickling.

    FinetuneError for an unreadable file, or a name that occurs in two files. An .npy file is
    memory-mapped.
    """
    rows: Rows = {}
    for text in files:
        name, _, file = text.rpartition("=")
        path = Path(file)
        found = {name: read_npy(path)} if path.suffix == ".npy" else read_arrays(Path(text))
        if path.suffix == ".npy" and not name:
            raise FinetuneError(f"{text} does not say of which input it is; give NAME={text}")
        twice = sorted(rows.keys() & found.keys())
        if twice:
            raise FinetuneError(f"{text} holds {twice[0]}, which another file holds too")
        rows |= found
    return rows


def load_weights(loaded: Loaded, checkpoint: Path | None) -> None:
    """Load a checkpoint, or from a training's folder its best or else newest one."""
    if checkpoint is None:
        return
    if checkpoint.is_file():
        loaded.trained.load(checkpoint)
    elif (checkpoint / BEST).is_file():
        loaded.trained.load(checkpoint / BEST)
    elif not Checkpoints(checkpoint).load(loaded.trained):
        raise no_checkpoint(checkpoint)


def accuracy(prediction: np.ndarray, target: np.ndarray) -> float:
    """Return the fraction of rows, or of tokens, whose largest logit is at their label."""
    return float(np.mean(np.argmax(prediction, axis=-1) == target))


METRICS: dict[str, Callable[..., Any]] = {"accuracy": accuracy}
"""Metrics that can be named."""


def find_metrics(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Return metrics by name: ours, or the user's functions."""
    return {name: METRICS.get(name) or _function(name) for name in names}


def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        found: Callable[..., Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise FinetuneError(
            f"metric {name}: {error}; give accuracy, or package.module:function of a prediction "
            "and a target"
        ) from error
    return found
