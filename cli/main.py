"""The command line: `pockengine COMMAND`; `commands.py` lists the commands."""

import os

import click

from pockengine.cli.lazy import LazyGroup
from pockengine.errors import PockEngineError


@click.group(cls=LazyGroup)
@click.version_option(package_name="pockengine")
def cli() -> None:
    """Compile a model's whole training step for the device it runs on."""


def main() -> None:
    """Run the command line; a known error is one plain line and exit status 1."""
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # Bazel runs programs elsewhere
    try:
        cli()
    except PockEngineError as error:
        raise SystemExit(f"pockengine: {error}") from error
