"""Arguments and options shared by several commands."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from tokenize import TokenError
from typing import Any

import click
import numpy as np

from pockengine.compiler.ir.graph import Graph
from pockengine.errors import ArtifactError, reason_of
from pockengine.files import data_file
from pockengine.frontends.choices import with_choices
from pockengine.frontends.losses import OWN, loss_text
from pockengine.models.find import Found, find_model
from pockengine.terminal import PlainConsole

Command = Callable[..., None]


class OutputFile(click.Path):
    """A file to write after the work. Its folder need not exist: the command makes it."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path; a usage error names a folder in which it cannot be created."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        _check_place(self, path, param, ctx)
        return path


class OutputFolder(click.Path):
    """A folder to write after the work; it need not exist."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path; a usage error names a folder in which it cannot be created."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        _check_place(self, path, param, ctx)
        return path


def _check_place(type_: click.Path, path: Path, param: Any, ctx: Any) -> None:
    """Raise a usage error if a path cannot be created; nothing is created yet."""
    folders = path.absolute().parents
    above = next((folder for folder in folders if folder.exists()), Path(path.anchor))
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        kind = "is not writable" if above.is_dir() else "is a file, not a folder"
        type_.fail(f"{path} cannot be created: {above} {kind}; choose another", param, ctx)


def make_folder_of(path: Path) -> Path:
    """Create the folder of an output, and return its path; ArtifactError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"{path.parent} cannot be created: {reason_of(error)}") from error
    return path


ROWS = "Rows per batch; default: MODEL's own, else {}."
OPEN = "Sizes of an input that MODEL's file leaves open."
FIXED = "Constant value of an ONNX input: a number or FILE.npy."
TRAIN = "Train this constant of an ONNX or TFLite file."
FREEZE = "Freeze this weight of an ONNX or TFLite file."
LOSS = f"cross_entropy, mse, ..., or {OWN}; default: MODEL's own loss."


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse an input's name with its sizes: x=1x3x224x224."""
    name, _, sizes = text.rpartition("=")
    if not name or not all(size.isdecimal() and int(size) for size in sizes.split("x")):
        raise click.BadParameter(f"{text!r} is no input with its sizes, as x=1x3x224x224")
    return name, tuple(map(int, sizes.split("x")))


def constant(text: str) -> tuple[str, np.ndarray]:
    """Parse an input's name with its value: steps=3, flag=true, table=FILE.npy."""
    name, _, value = text.partition("=")
    try:
        if value.endswith(".npy"):
            file = data_file(Path(value))
            return name, np.array(np.lib.format.open_memmap(file, mode="r"))
        return name, np.asarray(json.loads(value))
    except (OSError, TokenError, ValueError) as error:
        raise click.BadParameter(
            f"{text!r} is no input with its value, as steps=3 or table=FILE.npy: {reason_of(error)}"
        ) from error


shape_option = click.option(
    "--shape", "shapes", multiple=True, type=shape, metavar="NAME=SIZES", help=OPEN
)
FILE_OPTIONS = (
    click.option(
        "--constant", "constants", multiple=True, type=constant, metavar="NAME=VALUE", help=FIXED
    ),
    click.option("--trainable", multiple=True, metavar="NAME", help=TRAIN),
    click.option("--frozen", multiple=True, metavar="NAME", help=FREEZE),
)


def file_options(command: Command) -> Command:
    """Add the options of ONNX and TFLite files to a command."""
    for option in reversed(FILE_OPTIONS):
        command = option(command)
    return command


def file_choices(options: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, bool]]:
    """Extract the options of FILE_OPTIONS from a command's: constants, and trained parameters."""
    constants, trainable, frozen = (options.pop(n) for n in ("constants", "trainable", "frozen"))
    return dict(constants), dict.fromkeys(trainable, True) | dict.fromkeys(frozen, False)


loss_option = click.option("--loss", help=LOSS)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, not tables.")
records_option = click.option(
    "--json", "json_file", type=OutputFile(), help="Append records to this file."
)


@dataclass(frozen=True)
class ModelChoice:
    """The model options of the command line."""

    name: str
    batch: int | None
    shapes: Mapping[str, Sequence[int]]
    loss: str | None
    usual: int = 1
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    trainable: Mapping[str, bool] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Batch rows for a model that leaves them open."""
        return self.batch or self.usual

    def find(self, classes: int | None = None) -> Found:
        """Find the model, with the requested loss."""
        found = find_model(self.name, self.batch, self.shapes, classes=classes, usual=self.usual)
        found = replace(found, model=with_choices(found.model, self.constants, self.trainable))
        if self.loss is not None:
            return replace(found, loss=None if self.loss == OWN else self.loss)
        if found.stated:
            text = f"loss {loss_text(found.loss)}, as {self.name} says; --loss names another"
            click.echo(text, err=True)
        return found


def model_argument(usual: int = 1, *, loss: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that adds MODEL with --batch, --shape and --loss, combined as `model`.

    A batch has `usual` rows if neither MODEL nor --batch sets them.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_model(
            model: str,
            batch: int | None,
            shapes: Sequence[tuple[str, Sequence[int]]],
            loss: str | None = None,
            **options: Any,
        ) -> None:
            settings = dict(shapes), loss, usual, *file_choices(options)
            command(ModelChoice(model, batch, *settings), **options)

        parts = [
            click.argument("model"),
            click.option("--batch", type=click.IntRange(1), help=ROWS.format(usual)),
            shape_option,
            *FILE_OPTIONS,
            *([loss_option] if loss else []),
        ]
        for part in reversed(parts):
            with_model = part(with_model)
        return with_model

    return decorate


def batch_of(graph: Graph) -> int:
    """Return the batch rows of a graph, from its first input with a shape."""
    return next((value.shape[0] for value in graph.inputs if value.shape), 1)


def print_json(table: Any) -> None:
    """Print the JSON form of a table."""
    click.echo(json.dumps(table, indent=1, allow_nan=False))


def console() -> PlainConsole:
    """Return the console for tables."""
    return PlainConsole(140)
