"""Options for pausing a training on this machine."""

from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from pockengine.backends.training.duty import DutyCycle
from pockengine.cli.options import Command

_FILE = click.Path(path_type=Path)
_OPTIONS = (
    click.option(
        "--duty",
        "percent",
        default=100.0,
        type=click.FloatRange(0, 100, min_open=True),
        metavar="PERCENT",
        help="Maximum share of time to compute; rests after each step.",
    ),
    click.option(
        "--pause-above", type=float, metavar="CELSIUS", help="Pause above this temperature."
    ),
    click.option("--thermal", type=_FILE, help="Temperature file; default: the first zone's."),
    click.option(
        "--pause-below",
        type=click.FloatRange(0, 100, min_open=True),
        metavar="PERCENT",
        help="Pause below this battery charge.",
    ),
    click.option("--battery", type=_FILE, help="Charge file; default: the first supply's."),
)


def duty_options(command: Command) -> Command:
    """Add --duty and related options to a command, as `callbacks`; pauses are reported on
    stderr.
    """

    @wraps(command)
    def wrapped(
        *args: Any,
        percent: float,
        pause_above: float | None,
        thermal: Path | None,
        pause_below: float | None,
        battery: Path | None,
        **options: Any,
    ) -> None:
        duty = DutyCycle(
            percent,
            pause_above=pause_above,
            pause_below=pause_below,
            thermal=thermal,
            battery=battery,
            say=partial(click.echo, err=True),
        )
        command(*args, callbacks=[duty], **options)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
