"""Shared parts of the farm's commands: console, error lines, user paths."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import click

from pockengine.boundary import entry_point
from pockengine.errors import InternalError, PockEngineError
from pockengine.terminal import PlainConsole

CONSOLE = PlainConsole(140)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, not lines or tables.")
P = ParamSpec("P")


def plain_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Print a known error in one line and exit with status 1; internal errors keep their
    traceback.
    """
    guarded = entry_point(command)

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            guarded(*args, **kwargs)
        except InternalError:
            raise
        except PockEngineError as error:
            raise click.ClickException(str(error)) from error

    return run


def from_user(path: str | Path) -> Path:
    """Return a path relative to the user's folder: Bazel runs programs in another one."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")).absolute() / path


def print_rows(
    rows: Iterable[Mapping[str, object]], line: str, empty: str, as_json: bool = False
) -> None:
    """Print a line each, with the row's fields in it, or all rows as JSON.

    Without rows, print a line that there are none.
    """
    listed = list(rows)
    if as_json:
        click.echo(json.dumps(listed, indent=1))
        return
    for text in [line.format_map(row) for row in listed] or [empty]:
        CONSOLE.print(text)
