"""Arguments and options that several commands share, each defined here once."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from tokenize import TokenError
from typing import Any

import click
import numpy as np

from pockengine.cli.units import budget
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.optim import NAMED, Optimizer
from pockengine.compiler.storage import Storage, stored_names
from pockengine.files import data_file
from pockengine.frontends.choices import with_choices
from pockengine.frontends.losses import loss_text
from pockengine.models.find import Found, find_model
from pockengine.terminal import PlainConsole

Command = Callable[..., None]

OWN = "own"
"""The loss of a model that returns its own."""

ROWS = "Rows of a batch; by default as MODEL has it, else {}."
OPEN = "Of an input whose sizes MODEL's file leaves open."
FIXED = "Of an ONNX input: what it always is, a number or FILE.npy."
TRAIN = "A constant of an ONNX or TFLite file that trains."
FREEZE = "A weight of an ONNX or TFLite file that does not train."
LOSS = f"cross_entropy, mse, ..., or {OWN}; by default what MODEL is made for."


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read an input's name with its sizes: x=1x3x224x224."""
    name, _, sizes = text.rpartition("=")
    if not name or not all(size.isdecimal() and int(size) for size in sizes.split("x")):
        raise click.BadParameter(f"{text!r} is no input with its sizes, as x=1x3x224x224")
    return name, tuple(map(int, sizes.split("x")))


def constant(text: str) -> tuple[str, np.ndarray]:
    """Read an input's name with its value: steps=3, flag=true, table=FILE.npy."""
    name, _, value = text.partition("=")
    try:
        if value.endswith(".npy"):
            file = data_file(Path(value))
            return name, np.array(np.lib.format.open_memmap(file, mode="r"))
        return name, np.asarray(json.loads(value))
    except (OSError, TokenError, ValueError) as error:
        raise click.BadParameter(
            f"{text!r} is no input with its value, as steps=3 or table=FILE.npy: {error}"
        ) from error


OPTIMIZERS = f"{', '.join(NAMED)}; sgd:momentum=0.9, adamw:betas=0.9/0.98,weight_decay=0.1."

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
    """Give a command the options of files of ONNX and TFLite."""
    for option in reversed(FILE_OPTIONS):
        command = option(command)
    return command


def file_choices(options: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, bool]]:
    """Take the options of FILE_OPTIONS out of those of a command: constants, and what trains."""
    constants, trainable, frozen = (options.pop(n) for n in ("constants", "trainable", "frozen"))
    return dict(constants), dict.fromkeys(trainable, True) | dict.fromkeys(frozen, False)


loss_option = click.option("--loss", help=LOSS)
device_option = click.option(
    "--device", default="host", show_default=True, help="A name that `devices` lists, or a file."
)
backend_option = click.option(
    "--backend", help="Of those that the device takes; auto tries them. By default the device's."
)
scheme_option = click.option(
    "--scheme", default="full", show_default=True, help="A preset, or a TOML file."
)
bf16_option = click.option(
    "--bf16", is_flag=True, help="Round the operands of large products to bf16."
)
budget_option = click.option(
    "--memory-budget", type=budget, help="Of the whole arena: 400KB; recompute to fit."
)
tuned_option = click.option(
    "--tuned", type=click.Path(path_type=Path), help="A file of `pockengine tune`."
)
prepare_option = click.option(
    "--prepare", is_flag=True, help="Keep what kernels make of frozen weights: faster, larger."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, not tables.")
records_option = click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Append records to this file."
)


def storage_options(command: Command) -> Command:
    """Give a command an option for each field of Storage, as one `storage`."""

    @wraps(command)
    def wrapped(*args: Any, **given: Any) -> Any:
        storage = Storage(**{part.name: given.pop(part.name) for part in fields(Storage)})
        return command(*args, storage=storage, **given)

    made: Command = wrapped
    for part in reversed(fields(Storage)):
        made = storage_option(part.name)(made)
    return made


def storage_option(name: str, *defaults: str) -> Callable[[Command], Command]:
    """Return the option of a field of Storage; with defaults it may be given several times."""
    (part,) = [part for part in fields(Storage) if part.name == name]
    return click.option(
        part.metadata["flag"],
        name,
        type=click.Choice(stored_names(part)),
        multiple=bool(defaults),
        default=defaults or part.default,
        show_default=True,
        help=f"How {part.metadata['what']} are stored.",
    )


@dataclass(frozen=True)
class ModelChoice:
    """What the command line says of the model."""

    name: str
    batch: int | None
    shapes: Mapping[str, Sequence[int]]
    loss: str | None
    usual: int = 1
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    trainable: Mapping[str, bool] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of a batch where the model leaves them open."""
        return self.batch or self.usual

    def find(self, classes: int | None = None) -> Found:
        """Find the model, with the loss that is wished for."""
        found = find_model(self.name, self.batch, self.shapes, classes, self.usual)
        found = replace(found, model=with_choices(found.model, self.constants, self.trainable))
        if self.loss is not None:
            return replace(found, loss=None if self.loss == OWN else self.loss)
        if found.stated:
            text = f"loss {loss_text(found.loss)}, as {self.name} says; --loss names another"
            click.echo(text, err=True)
        return found


def model_argument(usual: int = 1, *, loss: bool = True) -> Callable[[Command], Command]:
    """Return what gives a command MODEL with --batch, --shape and --loss, as one `model`.

    A batch has `usual` rows where neither MODEL nor --batch says how many.
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
            said = dict(shapes), loss, usual, *file_choices(options)
            command(ModelChoice(model, batch, *said), **options)

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
    """Return the rows of a graph's batch, as its first input with a shape has them."""
    return next((value.shape[0] for value in graph.inputs if value.shape), 1)


def optimizer_option(
    default: str | None = "sgd", shown: str | bool = True
) -> Callable[[Command], Command]:
    """Return the option --optimizer, which gives a command an `optimizer` of ours.

    Without a default it gives None where nobody said one; `shown` is what help says of it.
    """
    return click.option(
        "--optimizer",
        default=default,
        show_default=shown,
        type=optimizer,
        metavar="NAME[:FIELD=NUMBER,...]",
        help=OPTIMIZERS,
    )


def optimizer(text: str) -> Optimizer:
    """Read an optimiser with what differs from its defaults: sgd:momentum=0.9."""
    name, _, rest = text.partition(":")
    if name.lower() not in NAMED:
        raise click.BadParameter(f"{name!r} is none of {', '.join(NAMED)}")
    kind = NAMED[name.lower()]
    known = {one.name: one.default for one in fields(kind) if isinstance(one.default, _WRITTEN)}
    given = {}
    for part in filter(None, rest.split(",")):
        key, _, number = part.partition("=")
        if key not in known:
            raise click.BadParameter(f"{name} has no {key!r}; it has {', '.join(known)}")
        try:
            given[key] = _like(known[key], number)
        except ValueError as error:
            raise click.BadParameter(f"{part!r} must read {key}={_text(known[key])}") from error
    made: Optimizer = kind(**given)
    return made


def _like(default: Any, text: str) -> Any:
    """Read a number, a truth, a word, or numbers with strokes between, as the default is."""
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if isinstance(default, tuple):
        parts = tuple(map(float, text.split("/")))
        if len(parts) != len(default):
            raise ValueError(text)
        return parts
    return text if isinstance(default, str) else type(default)(text)


_WRITTEN = (bool, int, float, str, tuple)
"""Kinds of settings that a command can give: not an optimiser within another."""


def _text(default: Any) -> str:
    if isinstance(default, tuple):
        return "/".join(f"{part:g}" for part in default)
    if isinstance(default, str):
        return default
    return str(default).lower() if isinstance(default, bool) else f"{default:g}"


def print_json(table: Any) -> None:
    """Print what a program reads instead of a table, as one JSON text."""
    click.echo(json.dumps(table, indent=1, allow_nan=False))


def console() -> PlainConsole:
    """Return where tables go."""
    return PlainConsole(140)
