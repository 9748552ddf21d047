"""`pockengine show ARTIFACT`."""

from pathlib import Path

import click
from rich.table import Table

from pockengine.backends.artifact import load_artifact
from pockengine.terminal import PlainConsole

CONSOLE = PlainConsole()


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
def show(artifact: Path) -> None:
    """Check an artifact and print what it holds."""
    manifest = load_artifact(artifact)
    table = Table(title=f"{manifest.name} for {manifest.device}")
    for heading in ("entry", "inputs", "outputs", "arena bytes"):
        table.add_column(heading)
    for name, entry in manifest.entries.items():
        inputs = "\n".join(f"{key} {type_}" for key, type_ in entry.inputs.items())
        outputs = "\n".join(f"{key} {type_}" for key, type_ in entry.outputs.items())
        table.add_row(name, inputs, outputs, f"{entry.arena_bytes:,}")
    CONSOLE.print(table)
    CONSOLE.print(f"weights and states {manifest.params_bytes:,} bytes, {manifest.kernels} kernels")
    trained = ", ".join(f"{name} {share}" for name, share in manifest.scheme.items())
    CONSOLE.print(f"trained: {trained}")
