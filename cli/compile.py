"""`pockengine compile MODEL`: build an artifact for a device, and check a first step."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pockengine.backends.artifact import Artifact, check_place
from pockengine.cli.option_fields import compile_options
from pockengine.cli.options import ModelChoice, json_option, model_argument, print_json
from pockengine.cli.steps import Steps
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.ir.recomputation import Recomputation
from pockengine.compiler.ir.text import print_graph
from pockengine.compiler.ops import node_cost
from pockengine.errors import CompileError, reason_of
from pockengine.frontends.losses import OWN
from pockengine.options import CompileOptions
from pockengine.terminal import PlainConsole

if TYPE_CHECKING:
    from pockengine.compiled import Compiled

CONSOLE = PlainConsole()


@click.command("compile")
@model_argument()
@compile_options(check=True)
@click.option("--out", "folder", type=click.Path(path_type=Path), help="Folder of the artifact.")
@click.option("--dump-ir", type=click.Path(path_type=Path), help="Write the graph after each pass.")
@json_option
def compile_command(
    model: ModelChoice,
    options: CompileOptions,
    folder: Path | None,
    dump_ir: Path | None,
    as_json: bool,
) -> None:
    """Compile MODEL to an artifact: a folder with C, a binary, weights and a manifest."""
    from pockengine.api import compile

    folder = folder or default_folder(model.name, str(options.device))
    check_place(folder)
    found = model.find()
    with Steps() as steps:
        compiled = compile(
            *(found.model, found.inputs),
            loss=OWN if found.loss is None else found.loss,
            options=options,
            folder=folder,
            progress=steps,
            observe=None if dump_ir is None else Dump(dump_ir),
        )
    _describe(compiled, as_json)


def default_folder(model: str, device: str) -> Path:
    """Return the default path of an artifact: beside the user's files."""
    name = Path(model).stem if Path(model).exists() else model
    return Path(f"{name.replace(':', '.')}-{Path(device).stem}")


def switching_facts(artifact: Artifact) -> dict[str, Any]:
    """Return the backend, and how it was chosen if automatically, as JSON facts."""
    choice = {} if artifact.switching is None else {"switching": artifact.switching.table()}
    return {"backend": artifact.backend, **choice}


def facts_of(compiled: "Compiled") -> dict[str, Any]:
    """Return the result as JSON facts."""
    return {
        "artifact": str(compiled.artifact.folder),
        **switching_facts(compiled.artifact),
        "entries": {
            name: {
                "nodes": len(entry.graph.nodes),
                "multiply_adds": sum(node_cost(node) for node in entry.graph.nodes),
                "arena_bytes": entry.plan.size,
            }
            for name, entry in compiled.program.entries.items()
        },
    }


def _describe(compiled: "Compiled", as_json: bool) -> None:
    """Print the result."""
    facts = facts_of(compiled)
    if as_json:
        print_json(facts)
        return
    CONSOLE.print(f"artifact {facts['artifact']}", soft_wrap=True)
    for line in compiled.switching.lines() if compiled.switching else ():
        CONSOLE.print(f"  {line}")
    for name, entry in facts["entries"].items():
        CONSOLE.print(
            f"  {name}: {entry['nodes']} nodes, {entry['multiply_adds'] / 1e6:.1f} M "
            f"multiply-adds, arena {entry['arena_bytes']:,} bytes"
        )
    for line in recomputation_lines(compiled.program.recomputation):
        CONSOLE.print(f"  {line}")


def recomputation_lines(report: Recomputation | None) -> tuple[str, ...]:
    """Describe the recomputation for a memory budget; nothing if the step fits without."""
    if report is None or not report.dropped:
        return ()
    return (
        f"recomputed {len(report.dropped)} values: {report.extra_operations / 1e6:.1f} M "
        f"more multiply-adds, peak {report.peak_before:,} -> {report.peak_after:,} bytes",
        *([report.solver] if report.solver else []),
    )


class Dump:
    """Writes the graph after each pass to `folder/NN.entry.pass.ir`."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CompileError(
                f"graphs cannot be written to {folder}: {reason_of(error)}"
            ) from error
        self._folder = folder
        self._count = 0

    def __call__(self, name: str, graph: Graph) -> None:
        """Write one graph."""
        path = self._folder / f"{self._count:02}.{name}.ir"
        path.write_text(print_graph(graph), encoding="utf-8")
        self._count += 1
