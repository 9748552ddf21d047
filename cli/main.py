"""The command line: `pockengine COMMAND`; `commands.py` lists the commands."""

import os
import traceback

import click

from pockengine import __version__
from pockengine.cli.lazy import LazyGroup
from pockengine.errors import InternalError, PockEngineError
from pockengine.signals import ending_on_signals


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="pockengine")
def cli() -> None:
    """Compile a model's whole training step for the device it runs on."""


def main() -> None:
    """Run the command line; a known error prints one line and exits with status 1.

    An internal error prints the traceback first.
    """
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # Bazel changes it
    with ending_on_signals():
        try:
            cli()
        except PockEngineError as error:
            if isinstance(error, InternalError):
                traceback.print_exception(error.__cause__)
            raise SystemExit(f"pockengine: {error}") from error
