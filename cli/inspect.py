"""`pockengine inspect MODEL` or ARTIFACT: trained parameters, memory by layer, cost of a step."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.box import SIMPLE
from rich.table import Table

from pockengine.backends.artifact import Artifact, load_artifact
from pockengine.backends.registry import backend_for
from pockengine.backends.replace import MANIFEST
from pockengine.backends.within_budget import within_budget
from pockengine.cli.compile import switching_facts
from pockengine.cli.kernels import alternatives_of, alternatives_table
from pockengine.cli.layers import OTHERS, LayerCost, layers_of
from pockengine.cli.option_fields import compile_options
from pockengine.cli.options import (
    ModelChoice,
    batch_of,
    console,
    json_option,
    model_argument,
    print_json,
)
from pockengine.cli.quantize import quantized_graph
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.graph import ParamKind
from pockengine.compiler.program import Program
from pockengine.compiler.quantize.report import Arithmetic, arithmetic
from pockengine.devices import Device, find_device
from pockengine.options import CompileOptions

CAPTION = """\
saved: alive from the forward pass to the backward one; at the peak: where the step needs most.
Multiply-adds in millions: of inference, and of the whole step."""


@click.command("inspect")
@model_argument()
@compile_options(without=("check", "prepare"))
@click.option(
    "--kernels", is_flag=True, help="Also list the plan of each product, and alternatives."
)
@json_option
def inspect_command(
    model: ModelChoice,
    options: CompileOptions,
    kernels: bool,
    as_json: bool,
) -> None:
    """Show what trains of MODEL, its memory by layer and its cost, without building anything.

    For an artifact's folder: check it, and show its contents.
    """
    if (Path(model.name) / MANIFEST).is_file():
        _check_settled(model.name)
        _show(load_artifact(Path(model.name)), as_json)
        return
    found = find_device(options.device).on(options.backend)
    quantize, scheme = options.quantize, str(options.scheme)
    graph, integers = quantized_graph(model.find(), quantize)
    training = replace(options, integers=integers)
    build = partial(compile_program, graph, training)
    program, backend = within_budget(build, backend_for(found, options))
    numbers = arithmetic(graph, integers.rounding) if quantize else ()
    layers = layers_of(program, backend.target())
    batch = batch_of(graph)
    facts = {"model": model.name, "batch": batch, "device": found.name, "scheme": scheme}
    facts |= totals(program, found)
    alternatives = alternatives_of(program, found) if kernels else None
    if as_json:
        requested = {"arithmetic": numbers if quantize else None, "kernels": alternatives}
        print_json({**facts, **_rows(layers=layers, **requested)})
        return
    terminal = console()
    terminal.print(layers_table(f"{model.name}, batch {batch}, {scheme}, for {found.name}", layers))
    if quantize:
        terminal.print(arithmetic_table(numbers))
    if alternatives is not None:
        terminal.print(alternatives_table(alternatives))
    terminal.print(_summary(facts))


def _check_settled(artifact: str) -> None:
    """Raise UsageError for options of compilation: an artifact has its own."""
    context = click.get_current_context()
    named = [
        parameter.opts[-1]
        for parameter in context.command.params
        if parameter.name not in ("model", "as_json")
        and context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    ]
    if named:
        raise click.UsageError(f"{artifact} is already compiled; leave out {', '.join(named)}")


def _rows(**tables: Sequence[Any] | None) -> dict[str, Any]:
    """Return the available tables as JSON facts."""
    return {
        name: [asdict(row) for row in rows] for name, rows in tables.items() if rows is not None
    }


def totals(program: Program, device: Device) -> dict[str, Any]:
    """Return the totals of a step; its time is modelled, if the device's clock is given."""
    train = program.entries["train"]
    cycles = sum(choice.cycles for choice in train.choices.values())
    predict = program.entries.get("predict")
    states = sum(
        param.value.type.nbytes
        for param in program.params.values()
        if param.kind is ParamKind.OPTIMIZER
    )
    return {
        "trained": len(program.scheme),
        "entries": {name: entry.plan.size for name, entry in program.entries.items()},
        "arena_bytes": program.arena_bytes,
        "params_bytes": sum(param.value.type.nbytes for param in program.params.values()),
        "beyond_inference_bytes": None
        if predict is None
        else max(0, train.plan.size - predict.plan.size) + states,
        "modelled_step_ms": cycles / (1e3 * device.mhz) if device.mhz and cycles else None,
    }


def layers_table(title: str, layers: Sequence[LayerCost]) -> Table:
    """Format the layers, with totals."""
    table = Table(title=title, caption=CAPTION, box=SIMPLE)
    table.add_column("layer")
    table.add_column("trains")
    for heading in ("params", "weights, B", "states, B", "saved, B", "at the peak, B"):
        table.add_column(heading, justify="right")
    for heading in ("inference", "step"):
        table.add_column(heading, justify="right")
    for layer in layers:
        if layer.params or layer.kept_bytes or layer.peak_bytes or layer.step:
            table.add_row(layer.name, layer.trains or "-", *_numbers([layer]))
    table.add_section()
    table.add_row("all", f"{sum(bool(layer.trains) for layer in layers)} layers", *_numbers(layers))
    return table


def arithmetic_table(lines: Sequence[Arithmetic]) -> Table:
    """Format which ops compute with integers or floats, and why."""
    table = Table(title="arithmetic on activations", box=SIMPLE)
    for heading in ("layer", "op", "numbers", "why"):
        table.add_column(heading)
    for line in lines:
        table.add_row(line.layer or OTHERS, line.op, line.numbers, line.why)
    return table


def _numbers(layers: Sequence[LayerCost]) -> list[str]:
    """Return the totals of layers as a table row."""
    names = ("params", "params_bytes", "states_bytes", "kept_bytes", "peak_bytes")
    counts = [f"{sum(getattr(layer, name) for layer in layers):,}" for name in names]
    work = [sum(layer.forward for layer in layers), sum(layer.step for layer in layers)]
    return [*counts, *(f"{count / 1e6:,.2f}" for count in work)]


def _summary(facts: dict[str, Any]) -> str:
    arenas = ", ".join(f"{name} {size:,}" for name, size in facts["entries"].items())
    time = facts["modelled_step_ms"]
    beyond, whole = facts["beyond_inference_bytes"], facts["arena_bytes"]
    weights = facts["params_bytes"]
    lines = [
        f"{facts['trained']} params train; arena in bytes: {arenas}",
        f"memory: {whole + weights:,} bytes in all",
        f"  arena {whole:,}: bounded by --memory-budget",
        f"  weights and states {weights:,}",
    ]
    if beyond is not None:
        lines.append(f"beyond inference: {beyond:,} bytes, bounded by --memory of search")
    if time is not None:
        lines.append(f"modelled time of a step: {time:.2f} ms")
    return "\n".join(lines)


def _show(artifact: Artifact, as_json: bool) -> None:
    """Print an artifact's contents."""
    if as_json:
        print_json(_facts(artifact))
        return
    table = Table(title=f"{artifact.name} for {artifact.device}")
    for heading in ("entry", "inputs", "outputs", "arena bytes"):
        table.add_column(heading)
    for name, entry in artifact.entries.items():
        inputs = "\n".join(f"{key} {type_}" for key, type_ in entry.inputs.items())
        outputs = "\n".join(f"{key} {type_}" for key, type_ in entry.outputs.items())
        table.add_row(name, inputs, outputs, f"{entry.arena_bytes:,}")
    terminal = console()
    terminal.print(table)
    terminal.print(
        f"memory of params {artifact.params_bytes:,} bytes, frozen {artifact.frozen_bytes:,} "
        f"bytes, {artifact.kernels} kernels"
    )
    trained = ", ".join(f"{name} {share}" for name, share in artifact.scheme.items())
    terminal.print(f"trained: {trained}")
    for line in artifact.switching.lines() if artifact.switching else ():
        terminal.print(line)


def _facts(artifact: Artifact) -> dict[str, Any]:
    """Return an artifact's contents as JSON facts."""
    return {
        "artifact": str(artifact.folder),
        "name": artifact.name,
        "device": artifact.device,
        **switching_facts(artifact),
        "arena_bytes": artifact.arena_bytes,
        "params_bytes": artifact.params_bytes,
        "frozen_bytes": artifact.frozen_bytes,
        "kernels": artifact.kernels,
        "trained": dict(artifact.scheme),
        "entries": {
            name: {
                "inputs": {key: str(type_) for key, type_ in entry.inputs.items()},
                "outputs": {key: str(type_) for key, type_ in entry.outputs.items()},
                "arena_bytes": entry.arena_bytes,
            }
            for name, entry in artifact.entries.items()
        },
    }
