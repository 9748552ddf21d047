"""What every command of the farm shares: the console, errors as one line, paths of users."""

import os
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import click
from rich.console import Console

from pockengine.errors import PockEngineError

CONSOLE = Console(
    highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 140
)
P = ParamSpec("P")


def plain_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Turn a known error into one line and exit status 1."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except PockEngineError as error:
            raise click.ClickException(str(error)) from error

    return run


def from_user(path: str | Path) -> Path:
    """Return a path as the user means it: Bazel runs programs in a folder of its own."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")).absolute() / path


def print_rows(rows: Iterable[str], empty: str) -> None:
    """Print a line each, or in one line that there is none: nothing printed says nothing."""
    lines = list(rows) or [empty]
    for line in lines:
        CONSOLE.print(line)
