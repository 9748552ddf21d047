"""`pockengine passes --pass NAME{...} graph.ir`: run passes on a dumped graph, one after another.

The graph is in the text form that `compile --dump-ir` writes; params hold zeros.
"""

import inspect
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.backends.registry import backend_for
from pockengine.cli.option_fields import compile_options
from pockengine.cli.options import console
from pockengine.compiler.compile import passes_of
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.passes.base import options_of, run_passes
from pockengine.compiler.passes.catalog import PASSES
from pockengine.compiler.passes.pass_text import parse_pass, parse_passes, print_passes
from pockengine.compiler.target import Target
from pockengine.devices import find_device
from pockengine.errors import GraphError, PockEngineError, reason_of
from pockengine.options import CompileOptions


@click.command("passes")
@click.argument("graph", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--pass", "texts", multiple=True, help="NAME or NAME{option=value, ...}.")
@click.option(
    "--passes",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of passes, one per line, as printed by --pipeline.",
)
@click.option("--list", "listed", is_flag=True, help="List the passes and their options.")
@click.option("--pipeline", help="Print the passes of this entry (train, evaluate, ...) instead.")
@compile_options(without=("check", "quantize"))
def passes_command(
    graph: str | None,
    texts: tuple[str, ...],
    file: Path | None,
    listed: bool,
    pipeline: str | None,
    options: CompileOptions,
) -> None:
    """Run passes on GRAPH, a file in the text form, and print the result."""
    if listed:
        console().print(_listed())
        return
    if graph is None:
        raise click.UsageError(
            "name a file with a graph, as compile --dump-ir writes it, or ask for --list"
        )
    parsed = _graph(Path(graph))
    if pipeline is None:
        passes = [] if file is None else parse_passes(_text(file, "passes"), _target)
        passes += [parse_pass(text, _target) for text in texts]
        run_passes(passes, parsed, check=True)
        click.echo(print_graph(parsed), nl=False)
        return
    device = find_device(options.device).on(options.backend)
    target = backend_for(device, options).target()
    entries = passes_of(parsed, options, target=target)
    if pipeline not in entries:
        raise PockEngineError(f"{graph} has no entry {pipeline!r}; it has {', '.join(entries)}")
    click.echo(print_passes(entries[pipeline]), nl=False)


def _graph(path: Path) -> Graph:
    text = _text(path, "graph")
    try:
        return parse_graph(text)
    except GraphError as error:
        raise GraphError(
            f"{path}: {error}; give a file that compile --dump-ir has written"
        ) from error


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise GraphError(f"{path} holds no {what} as text: {reason_of(error)}") from error


def _target(device: str) -> Target:
    return backend_for(find_device(device)).target()


def _listed() -> Table:
    """Return the passes with their options and descriptions."""
    table = Table("pass", "does", box=SIMPLE)
    for name, kind in sorted(PASSES.items()):
        names = ", ".join(options_of(kind))
        does = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
        table.add_row(f"{name}{{{names}}}" if names else name, does)
    return table
