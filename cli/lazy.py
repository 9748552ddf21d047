"""A group of commands that imports a command when it is called."""

from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from pockengine.cli.commands import ROWS, SECTIONS
from pockengine.extras import need

NAME = max(map(len, ROWS))
"""Length of the longest name, so that all sections align."""


class LazyGroup(click.Group):
    """The commands of `commands.py`; help and completion import none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in section order."""
        return list(ROWS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; MissingPackage if an extra that it needs is not installed."""
        if cmd_name not in ROWS:
            return None
        row = ROWS[cmd_name]
        need(f"pockengine {cmd_name}", *row.extras)
        module, _, attribute = row.place.partition(":")
        command: click.Command = getattr(import_module(f"pockengine.{module}"), attribute)
        command.epilog = f"\b\nExample:\n  pockengine {row.example}"
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; our own code raises only PockEngineError."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            from pockengine.boundary import stray  # late: it takes longer than help

            fault = stray(error, f"pockengine {ctx.invoked_subcommand}")
            if fault is None:
                raise
            raise fault from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections with each command's line."""
        for title, rows in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(NAME), row.help) for name, row in rows.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the commands, and the group's options."""
        offered = [
            CompletionItem(name, help=row.help)
            for name, row in ROWS.items()
            if name.startswith(incomplete)
        ]
        return [*offered, *click.Command.shell_complete(self, ctx, incomplete)]
