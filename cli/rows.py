"""Data and weights for `train`, `evaluate` and `predict` on the command line."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np

from pockengine.backends.training.checkpoints import BEST, Checkpoints
from pockengine.errors import FinetuneError, RuntimeFailure
from pockengine.finetune.data_files import read_arrays, read_npy
from pockengine.loaded import Loaded

Rows = dict[str, np.ndarray]

data_option = click.option(
    "--data",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|FOLDER|NAME=FILE.npy",
    help="Rows [N, ...] by inputs' names: .safetensors, .npz, a folder of NAME.npy; of one .npy.",
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
    if not checkpoint.is_dir():
        loaded.trained.load(checkpoint)
    elif (checkpoint / BEST).is_file():
        loaded.trained.load(checkpoint / BEST)
    elif not Checkpoints(checkpoint).load(loaded.trained):
        raise RuntimeFailure(f"{checkpoint} holds no checkpoint of a training")


def accuracy(prediction: np.ndarray, target: np.ndarray) -> float:
    """Return the fraction of rows, or of tokens, whose largest logit is at their label."""
    return float(np.mean(np.argmax(prediction, axis=-1) == target))


METRICS: dict[str, Callable[..., Any]] = {"accuracy": accuracy}
"""Metrics that have a name of their own."""


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
