"""`pockengine budgets MODEL`: what smaller arenas cost in multiply-adds and time.

Each row is a plan under a memory budget, from the plan without one to the smallest arena. A plan is
left out if a smaller one takes as few multiply-adds.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.backends.native.profile import Timed, example_inputs, profile_step
from pockengine.backends.protocol import Backend
from pockengine.backends.registry import backend_for
from pockengine.backends.within_budget import within_budget
from pockengine.cli.option_fields import compile_options
from pockengine.cli.options import (
    ModelChoice,
    batch_of,
    make_folder_of,
    model_argument,
    records_option,
)
from pockengine.cli.steps import Steps
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.ops import node_cost
from pockengine.compiler.program import Program
from pockengine.devices import Device, find_device
from pockengine.errors import BudgetError, CompileError
from pockengine.extras import need
from pockengine.farm.load import Load, watching
from pockengine.options import CompileOptions
from pockengine.terminal import PlainConsole

SHARES = tuple(percent / 100 for percent in range(90, 0, -10))
"""Budgets to try, as fractions of the arena without one."""

ROUNDS = 5
"""Times that all plans are timed in turns, so that noise affects them equally."""

STEPS = 8
"""Training steps of a plan per round."""


@dataclass
class Planned:
    """A plan under a budget: the program, the backend that fits it, and ms of a step per round."""

    program: Program
    backend: Backend
    step_ms: list[float] = field(default_factory=list)

    @property
    def arena(self) -> int:
        """Arena bytes: a budget that this plan fits."""
        return self.program.arena_bytes

    @property
    def operations(self) -> int:
        """Multiply-adds of a training step."""
        return sum(node_cost(node) for node in self.program.entries["train"].graph.nodes)


@click.command("budgets")
@model_argument()
@compile_options(without=("check", "memory_budget", "quantize"))
@click.option("--measure", is_flag=True, help="Time a step of each plan on this machine.")
@click.option("--threads", type=click.IntRange(1), help="With --measure. Default: all cores.")
@records_option
def budgets(
    model: ModelChoice,
    options: CompileOptions,
    measure: bool,
    threads: int | None,
    json_file: Path | None,
) -> None:
    """Show what smaller memory budgets cost MODEL's training step."""
    if json_file is not None:
        need("budgets --json", "farm")
    device = find_device(options.device).on(options.backend)
    backend = backend_for(device, options)
    _check_measured(device, measure, threads)
    graph, workers = model.find().graph(), threads or device.cpu.cores
    with watching() as load, Steps() as tell:
        plans = find_plans(partial(_compile, graph, options, backend), tell)
        for turn in range(ROUNDS if measure else 0):
            tell(f"timing {len(plans)} plans, round {turn + 1} of {ROUNDS}")
            for plan in plans:
                plan.step_ms.append(_step_ms(plan, workers))
    title = f"{model.name}, batch {batch_of(graph)}, {options.scheme}, for {device.name}"
    console = PlainConsole()
    console.print(_table(title, plans))
    console.print("To use a row, compile with --memory-budget and its arena.")
    if measure and load.mark is not None:
        console.print(load.mark)
    if json_file is not None:
        what = model.name, batch_of(graph), str(options.scheme)
        _write(make_folder_of(json_file), what, plans, (device.name, workers, load))


def _check_measured(device: Device, measure: bool, threads: int | None) -> None:
    """Raise UsageError or CompileError if nothing can be timed."""
    if threads is not None and not measure:
        raise click.UsageError("--threads is of --measure; add --measure, or leave it out")
    if measure and (device.backend, device.toolchain.target) != ("c", "native"):
        raise CompileError(
            f"--measure times steps on this machine, and not on {device.name} by "
            f"{device.backend}; name the device host, or leave it out"
        )


def _compile(
    graph: Graph, options: CompileOptions, backend: Backend, budget: int | None
) -> Planned:
    build = partial(compile_program, graph, replace(options, memory_budget=budget))
    return Planned(*within_budget(build, backend))


def find_plans(plan: Callable[[int | None], Planned], tell: Callable[[str], None]) -> list[Planned]:
    """Return plans from the largest arena to the smallest, each with more multiply-adds."""
    tell("planning without a budget")
    plans = [plan(None)]
    whole, least = plans[0].arena, 0
    for share in SHARES:
        budget = int(share * whole)
        if budget >= plans[-1].arena:
            continue  # the last plan fits
        tell(f"planning within {share:.0%} of {whole:,} bytes")
        try:
            plans.append(plan(budget))
        except BudgetError as error:
            least = error.least
            break
    if whole > least > 0:
        tell(f"planning within {least:,} bytes, the smallest arena")
        plans.append(plan(least))
    return pareto(plans)


def pareto(plans: Sequence[Planned]) -> list[Planned]:
    """Return the plans without those that a smaller one equals in multiply-adds, largest first."""
    found: list[Planned] = []
    for plan in sorted(plans, key=lambda each: (each.arena, each.operations)):
        if not found or plan.operations < found[-1].operations:
            found.append(plan)
    return found[::-1]


def _step_ms(plan: Planned, threads: int) -> float:
    """Milliseconds of a step: the sum of its kernels' medians."""
    inputs = example_inputs(plan.program.entries["train"].graph)
    backend = cast(Timed, plan.backend)  # that of C, as checked
    times = profile_step(plan.program, backend, inputs, threads=threads, steps=STEPS)
    return sum(call.median_ns for call in times) / 1e6


def _table(title: str, plans: Sequence[Planned]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE)
    timed, first = bool(plans[0].step_ms), plans[0]
    headings = ["arena, bytes", "of the first", "multiply-adds, M", "more"]
    for heading in [*headings, *(["step, ms", "min", "max"] if timed else [])]:
        table.add_column(heading, justify="right")
    for plan in plans:
        more = plan.operations / first.operations - 1
        cells = [f"{plan.arena:,}", f"{plan.arena / first.arena:.0%}"]
        cells += [f"{plan.operations / 1e6:,.1f}", f"{more:.1%}"]
        if timed:
            ms = plan.step_ms
            cells += [f"{each:.1f}" for each in (statistics.median(ms), min(ms), max(ms))]
        table.add_row(*cells)
    return table


def _write(
    path: Path,
    what: tuple[str, int, str],
    plans: Sequence[Planned],
    where: tuple[str, int, Load],
) -> None:
    """Append each plan's arena and multiply-adds, and its time if measured."""
    from pockengine import __version__
    from pockengine.farm.results.results import write_lines
    from pockengine.farm.results.setup import EngineRun, Setup

    (model, batch, scheme), (device, threads, load) = what, where
    setup = Setup(model, "random", batch, threads, device=device, busy=load.mark)
    run, records = EngineRun("pockengine", __version__, scheme), []
    for plan in plans:
        note = f"{plan.arena / plans[0].arena:.0%} of the arena without a budget"
        records.append(setup.record(run, "arena_bytes", plan.arena, note=note))
        records.append(setup.record(run, "multiply_adds", plan.operations, note=note))
        if ms := plan.step_ms:
            spread = min(ms), max(ms), len(ms)
            middle = statistics.median(ms)
            records.append(
                setup.record(run, "step_ms", middle, spread=spread, note=note, samples=ms)
            )
    write_lines(records, path)
