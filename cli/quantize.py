"""Int8 on the command line: --quantize with calibration samples and options.

The samples are rows in the common data format (`rows.py`), or `own` for an int8 model.
"""

from collections.abc import Sequence
from functools import wraps
from typing import Any

import click

from pockengine.cli.options import Command
from pockengine.compiler.integers import GRADIENTS, Integers
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.quantize.int8 import Int8
from pockengine.compiler.quantize.ranges import METHODS
from pockengine.frontends.losses import OWN
from pockengine.frontends.registry import find_source
from pockengine.models.find import Found

_DEFAULTS = Int8()
_OPTIONS = (
    click.option(
        "--quantize",
        "samples",
        multiple=True,
        metavar=f"FILE|FOLDER|NAME=FILE.npy|{OWN}",
        help=f"Train in int8, with ranges from these rows; {OWN}: those of an int8 MODEL.",
    ),
    click.option(
        "--quantize-method",
        "method",
        type=click.Choice(list(METHODS)),
        help=f"Method that derives ranges from the rows; default: {_DEFAULTS.method}.",
    ),
    click.option(
        "--quantize-share",
        "share",
        type=click.FloatRange(0, 0.5, max_open=True),
        help=f"Share cut at each end by percentile; default: {_DEFAULTS.share:g}.",
    ),
    click.option(
        "--quantize-gradients",
        "gradients",
        type=click.Choice(GRADIENTS),
        help=f"Gradients of integer products; default: {_DEFAULTS.gradients}.",
    ),
    click.option(
        "--quantize-input",
        "inputs",
        multiple=True,
        metavar="NAME",
        help="An input passed as int8.",
    ),
    click.option(
        "--qas/--no-qas",
        default=None,
        help="Optimizers update real weights, or the integers; default: real weights.",
    ),
)
_NAMES = {
    "method": "--quantize-method",
    "share": "--quantize-share",
    "gradients": "--quantize-gradients",
    "inputs": "--quantize-input",
    "qas": "--qas or --no-qas",
}


def quantize_options(command: Command) -> Command:
    """Add --quantize and related options to a command, combined as `quantize`: an Int8, or None."""

    @wraps(command)
    def wrapped(*args: Any, **others: Any) -> Any:
        chosen = {name: others.pop(name) for name in _NAMES}
        settings = {name: value for name, value in chosen.items() if value not in (None, ())}
        return command(*args, quantize=_int8(others.pop("samples"), settings), **others)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def _int8(samples: Sequence[str], settings: dict[str, Any]) -> Int8 | None:
    from pockengine.cli.rows import read_rows

    if not samples:
        if settings:
            names = ", ".join(_NAMES[name] for name in settings)
            raise click.UsageError(f"{names} without --quantize; give the rows that set the ranges")
        return None
    if "share" in settings and settings.get("method", _DEFAULTS.method) != "percentile":
        raise click.UsageError("--quantize-share is read by --quantize-method percentile only")
    if OWN not in samples:
        return Int8(read_rows(samples), **settings)
    ranges = [_NAMES[name] for name in ("method", "share", "inputs") if name in settings]
    if len(samples) > 1 or ranges:
        what = ", ".join(ranges) or "rows"
        raise click.UsageError(
            f"--quantize {OWN} takes the ranges of MODEL's file; leave out {what}"
        )
    return Int8(**settings)


def quantized_graph(found: Found, how: Int8 | None) -> tuple[Graph, Integers]:
    """Import a model with its loss, quantized on request, and return its integer options.

    Options that are not given have their defaults.
    """
    if how is None:
        return found.graph(), Integers()
    source = find_source(found.model, found.inputs)
    integers = how.integers(source.frontend.rounding)
    if how.calibration is None:
        return source.integers(found.loss), integers
    return how.apply(found.graph())[0], integers
