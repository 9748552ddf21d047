"""The reference page of the command line: every command with its options, as in `--help`."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

    from pockengine.cli.commands import Row

HEAD = """# Command line

`pockengine COMMAND` where the package is installed, `bazel run //:cli -- COMMAND` from a clone.
This page is generated from the commands; `pockengine COMMAND --help` prints the same.
[Naming a model](../howto/models.md) explains MODEL.
"""


def command_page() -> str:
    """Return the page; a command whose packages are not installed has its example alone."""
    sections = import_module("pockengine.cli.commands").SECTIONS
    parts = [HEAD]
    for title, rows in sections.items():
        parts.append(f"## {title}\n")
        for name, row in rows.items():
            parts += _command(name, row)
    return "\n".join(parts)


def _command(name: str, row: "Row") -> Iterator[str]:
    yield f"### {name}\n"
    module, _, attribute = row.place.partition(":")
    try:
        command = getattr(import_module(f"pockengine.{module}"), attribute)
    except ImportError as error:
        yield f"{row.help} Its options are listed where {error.name} is installed.\n"
    else:
        yield from _options(name, command)
    yield f"Example: `pockengine {row.example}`\n"


def _options(name: str, command: "click.Command") -> Iterator[str]:
    import click

    context = click.Context(command, info_name=f"pockengine {name}")
    usage = command.get_usage(context).removeprefix("Usage: ")
    words = inspect.cleandoc((command.help or "").replace("\b", ""))
    yield f"```text\n{usage}\n```\n\n{words}\n"
    for part in command.params:
        record = part.get_help_record(context) if isinstance(part, click.Option) else None
        if record is not None:
            yield f"- `{record[0]}` {' '.join(record[1].split())}".rstrip()
    yield ""
