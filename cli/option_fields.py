"""Command options generated from fields of CompileOptions, Storage and FitOptions."""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

import click

from pockengine.backends.protocol import BackendOptions
from pockengine.backends.training.options import FitOptions
from pockengine.cli.optimizers import read_optimizer
from pockengine.cli.options import Command
from pockengine.cli.quantize import quantize_options
from pockengine.cli.units import budget
from pockengine.compiler.optim import Optimizer
from pockengine.compiler.option import flag_of
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.compiler.storage import Storage
from pockengine.options import CompileOptions

Decorator = Callable[[Command], Command]


def compile_options(*names: str, without: Sequence[str] = (), **defaults: Any) -> Decorator:
    """Return a decorator that adds an option per named field, combined as `options`.

    By default, it covers all fields with a help except those in `without`. `defaults` are the
    command's own defaults, as written on the command line.
    """
    chosen = names or [name for name in _OFFERED if name not in without]
    return _as_one("options", CompileOptions, chosen, defaults)


def fit_options(*names: str) -> Decorator:
    """Return a decorator that adds an option per named field of FitOptions, combined as
    `course`.
    """
    return _as_one("course", FitOptions, names, {})


def storage_options(command: Command) -> Command:
    """Add an option per field of Storage, combined as `storage`."""
    names = [part.name for part in fields(Storage)]
    return _as_one("storage", Storage, names, {})(command)


def field_option(
    name: str, default: Any = MISSING, shown: str | bool | None = None, kind: type = CompileOptions
) -> Decorator:
    """Return the option of a field; `shown` is the default shown in the help, if any."""
    part = next(part for part in fields(kind) if part.name == name)
    type_ = get_type_hints(kind)[name]
    default = _default(part) if default is MISSING else default
    flag = flag_of(part)
    if type_ is bool and default:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    return click.option(
        *(flag, name),
        help=part.metadata["help"],
        default=default,
        show_default=isinstance(default, str | float) if shown is None else shown,
        **_reader(part, type_),
    )


def storage_forms(name: str, *defaults: str) -> Decorator:
    """Return the option of a Storage field that may be repeated."""
    (part,) = [part for part in fields(Storage) if part.name == name]
    return click.option(
        *(flag_of(part), name),
        type=click.Choice(part.metadata["names"]),
        multiple=True,
        default=defaults,
        show_default=True,
        help=part.metadata["help"],
    )


def _as_one(parameter: str, kind: type, names: Any, defaults: dict[str, Any]) -> Decorator:
    """Return a decorator that adds options and combines their values."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_options(*args: Any, **others: Any) -> Any:
            chosen = {name: others.pop(name) for name in names}
            return command(*args, **{parameter: kind(**chosen)}, **others)

        made: Command = with_options
        for name in reversed(names):
            group = _GROUPS.get(name)
            made = (group or field_option(name, defaults.get(name, MISSING), kind=kind))(made)
        return made

    return decorate


MOST_METAVAR = 60
"""Maximum characters of an option's metavar; longer choices are listed in the help text."""

_GROUPS: dict[str, Decorator] = {"storage": storage_options, "quantize": quantize_options}
"""Fields that are groups of fields."""


def _default(part: "Field[Any]") -> Any:
    """Format a field's default for the command line."""
    written = {"optimizer": "sgd", "clip": 0.0}
    return written.get(part.name, part.default)


def _reader(part: "Field[Any]", type_: Any) -> dict[str, Any]:
    """Return click's type for a field; text by default."""
    if part.name == "memory_budget":
        return {"type": budget}
    if "names" in part.metadata:
        choice = click.Choice(part.metadata["names"])
        long = len("|".join(choice.choices)) > MOST_METAVAR
        return {"type": choice, "metavar": part.name.upper()} if long else {"type": choice}
    if "reads" in part.metadata:
        return {"type": part.metadata["reads"]}
    if type_ in (int, int | None):
        return {"type": click.IntRange(part.metadata.get("least", 1))}
    return _READERS.get(type_, {})


def _names(
    context: click.Context, option: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Return the names; None if the option is absent, an empty tuple if it is empty."""
    return tuple(filter(None, names)) if names else None


def _clip(context: click.Context, option: click.Parameter, norm: float) -> Clip:
    return Clip(norm=norm) if norm else Clip()


_READERS: dict[Any, dict[str, Any]] = {
    bool: {"is_flag": True},
    Path | str | None: {"type": click.Path(path_type=Path)},
    Optimizer: {"type": read_optimizer, "metavar": "NAME[:FIELD=NUMBER,...]"},
    tuple[str, ...] | None: {"multiple": True, "metavar": "NAME", "callback": _names},
    Clip: {"type": click.FloatRange(0), "callback": _clip},
}

_OFFERED = [
    part.name
    for kind in (CompileOptions, Training, BackendOptions)
    for part in fields(kind)
    if part.name in kind.__annotations__ and (part.name in _GROUPS or part.metadata["help"])
]

device_option = field_option("device")
"""The device option, for commands without `compile_options`."""
