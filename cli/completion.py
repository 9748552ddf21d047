"""`pockengine completion SHELL`: print a shell's completion script."""

import click
from click.shell_completion import get_completion_class

from pockengine.errors import PockEngineError

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    For bash: pockengine completion bash >> ~/.bashrc
    """
    found = get_completion_class(shell)
    if found is None:
        raise PockEngineError(f"click knows no completion for {shell}")
    click.echo(found(ctx.find_root().command, {}, "pockengine", "_POCKENGINE_COMPLETE").source())
