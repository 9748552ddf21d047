"""`pockengine compile MODEL`: an artifact for a device, with a first step compared."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.ir.text import print_graph
from pockengine.compiler.ops import node_cost
from pockengine.errors import CompileError
from pockengine.models.find import find_model
from pockengine.terminal import PlainConsole

if TYPE_CHECKING:
    from pockengine.api import Compiled

CONSOLE = PlainConsole()


@click.command("compile")
@click.argument("model")
@click.option("--device", default="host", show_default=True, help="A file of devices/.")
@click.option("--scheme", default="full", show_default=True, help="A preset, or a TOML file.")
@click.option("--batch", show_default="1", type=click.IntRange(1), help="Rows of the examples.")
@click.option("--loss", help="By default cross_entropy, unless MODEL returns its loss.")
@click.option("--memory-budget", type=click.IntRange(1), help="Bytes; recompute to fit.")
@click.option("--bf16", is_flag=True, help="Round the operands of large products to bf16.")
@click.option("--tuned", type=click.Path(path_type=Path), help="A table of pockengine tune.")
@click.option("--check/--no-check", default=True, help="Compare a step with the framework's own.")
@click.option("--out", "folder", type=click.Path(path_type=Path), help="Folder of the artifact.")
@click.option("--dump-ir", type=click.Path(path_type=Path), help="Write the graph after each pass.")
def compile_command(
    model: str,
    device: str,
    scheme: str,
    batch: int | None,
    loss: str | None,
    memory_budget: int | None,
    bf16: bool,
    tuned: Path | None,
    check: bool,
    folder: Path | None,
    dump_ir: Path | None,
) -> None:
    """Compile MODEL to an artifact: a folder with C, a binary, weights and a manifest."""
    from pockengine.api import compile

    module, example_inputs, own_loss = find_model(model, batch)
    compiled = compile(
        module,
        example_inputs,
        loss=loss or own_loss,
        scheme=scheme,
        device=device,
        memory_budget=memory_budget,
        bf16=bf16,
        tuned=tuned,
        check=check,
        folder=folder or Path(f"{model.replace(':', '.')}-{device}"),
        progress=lambda text: click.echo(text, err=True),
        observe=None if dump_ir is None else Dump(dump_ir),
    )
    _describe(compiled)


def _describe(compiled: "Compiled") -> None:
    """Print what was made."""
    CONSOLE.print(f"artifact {compiled.artifact.folder}")
    for name, entry in compiled.program.entries.items():
        operations = sum(node_cost(node) for node in entry.graph.nodes)
        CONSOLE.print(
            f"  {name}: {len(entry.graph.nodes)} nodes, {operations / 1e6:.1f} M multiply-adds, "
            f"arena {entry.plan.size:,} bytes"
        )
    report = compiled.program.recomputation
    if report is not None:
        CONSOLE.print(
            f"  recomputed {len(report.dropped)} values: {report.extra_operations / 1e6:.1f} M "
            f"more multiply-adds, peak {report.peak_before:,} -> {report.peak_after:,} bytes"
        )


class Dump:
    """Writes the graph after each pass to `folder/NN.entry.pass.ir`."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CompileError(f"graphs cannot be written to {folder}: {error}") from error
        self._folder = folder
        self._count = 0

    def __call__(self, name: str, graph: Graph) -> None:
        """Write one graph."""
        path = self._folder / f"{self._count:02}.{name}.ir"
        path.write_text(print_graph(graph), encoding="utf-8")
        self._count += 1
