"""`pockengine tune MODEL --device D`: measure kernel plans on the device, and record the best.

A physical board of the inventory, or this machine, is measured by time; an emulated one by guest
instructions of one thread, because an emulator's time is meaningless. With a GPU backend the GPU's
products are tuned instead, with TVM its kernels.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.console import RenderableType
from rich.table import Table

from pockengine.backends.c.tune import (
    TIME_NOISE,
    as_figures,
    bench_meter,
    find_problems,
    host_meter,
    time_unit,
)
from pockengine.backends.native.tuning import PLANS, Figure, Meter, TuningProblem, tune
from pockengine.backends.placement import kernel_nodes
from pockengine.backends.protocol import Backend
from pockengine.backends.registry import backend_for
from pockengine.backends.tuned import TunedPlan, TunedTable, new_table, read_table, write_table
from pockengine.cli.option_fields import compile_options
from pockengine.cli.options import (
    ModelChoice,
    OutputFile,
    batch_of,
    model_argument,
)
from pockengine.cli.tune_gpu import GPUS, tune_gpu
from pockengine.cli.tune_tvm import KERNELS, LEAST_TRIALS, TRIALS, TVM, tune_tvm
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph, Node
from pockengine.compiler.options import Training
from pockengine.devices import Device, load_device
from pockengine.devices.isa import COUNTERS
from pockengine.errors import CompileError, FarmError
from pockengine.farm.boards.board import Board, Local, board_for, load_boards
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.references.instructions import count
from pockengine.farm.transports.transport import Transport
from pockengine.options import CompileOptions
from pockengine.terminal import PlainConsole

WIDTH = 150
INSTRUCTIONS_MARGIN = 0.01
"""Minimum gain by instructions: they ignore caches and threads, so smaller gains do not override
the estimate.
"""


@click.command("tune")
@model_argument()
@click.option(
    "--device", "board_name", default="host", show_default=True, help="Or a board's name."
)
@compile_options("scheme", "optimizer", "bf16")
@click.option("--plans", default=PLANS, show_default=True, type=click.IntRange(2))
@click.option(
    "--backend",
    type=click.Choice([TVM, *GPUS]),
    help="Tune TVM's kernels, or the products of a GPU.",
)
@click.option(
    "--trials",
    default=TRIALS,
    show_default=True,
    type=click.IntRange(LEAST_TRIALS),
    help="TVM: schedules tried per kernel.",
)
@click.option(
    "--kernels",
    default=KERNELS,
    show_default=True,
    type=click.IntRange(1),
    help="TVM: number of kernels to tune, costliest first.",
)
@click.option(
    "--out",
    type=OutputFile(),
    help="Default: tuned-DEVICE.json, tuned-BACKEND-DEVICE.json.",
)
def tune_command(
    model: ModelChoice,
    board_name: str,
    options: CompileOptions,
    plans: int,
    backend: str | None,
    trials: int,
    kernels: int,
    out: Path | None,
) -> None:
    """Measure the likeliest plans of MODEL's products and convolutions on a device.

    Plans are added to the table in the file --out, for `pockengine compile --tuned FILE`; problems
    in the table are not measured again. With --backend tvm, MetaSchedule searches the schedules of
    the step's most expensive kernels, on this machine. With --backend cuda, opencl or vulkan,
    several tilings of the products of the device's GPU are timed within the step.
    """
    board = board_for(board_name, load_boards())
    bf16, graph = options.bf16, model.find().graph()
    title = f"{model.name}, batch {batch_of(graph)}, {options.scheme}, {board.name}"
    if backend == TVM:
        device = _measured_here(board, bf16)
        out = out or Path(f"tuned-tvm-{device.name}.json")
        found = tune_tvm(title, graph, options, device=device, out=out, amount=(trials, kernels))
        printed: list[RenderableType] = [found, f"{out} is what compile --backend tvm takes"]
    elif backend is not None:
        out = out or Path(f"tuned-{backend}-{board.device}.json")
        how = backend, bf16, plans
        problems, table = tune_gpu(graph, options, board, out=out, how=how, tell=_tell)
        printed = _summary(title, problems, table, out)
    else:
        out = out or Path(f"tuned-{board.device}.json")
        printed = _tune_c(title, graph, options, board=board, out=out, plans=plans)
    console = PlainConsole(WIDTH)
    for each in printed:
        console.print(each)


def _measured_here(board: Board, bf16: bool) -> Device:
    """Return the device of this machine; an error if TVM's tuner would measure another."""
    if not isinstance(board.place, Local):
        raise FarmError(
            f"TVM's tuner measures on this machine, and not on {board.name}; leave out --device"
        )
    if bf16:
        raise CompileError("backend tvm has no option bf16; leave it out")
    return load_device(board.device)


def _tune_c(
    title: str,
    graph: Graph,
    options: CompileOptions,
    board: Board,
    out: Path,
    plans: int,
) -> list[RenderableType]:
    """Tune C kernels into a table file; return a summary."""
    device = load_device(board.device)
    nodes = step_nodes(graph, options, backend_for(device, options))
    _tell(f"listing plans for {device.name}")
    problems = find_problems(nodes, device, bf16=options.bf16, plans=plans)
    with open_meter(board, device) as meter:
        table = read_table(out, device) if out.exists() else new_table(device, meter.unit)
        if table.unit != meter.unit:
            raise CompileError(
                f"tuned plans {out} are in {table.unit}, {board.name} is measured in "
                f"{meter.unit}; give another --out"
            )
        table = tune(problems, meter, table, save=partial(write_table, path=out), progress=_tell)
    return _summary(title, problems, table, out)


def _summary(
    title: str, problems: Sequence[TuningProblem], table: TunedTable, out: Path
) -> list[RenderableType]:
    """Return a summary."""
    found = report(title, problems, table), summary(problems, table)
    return [*found, f"{len(table.rows)} rows in {out}"]


def _tell(text: str) -> None:
    click.echo(text, err=True)


def step_nodes(graph: Graph, training: Training, backend: Backend) -> list[Node]:
    """Return the kernels' nodes of a model's training step."""
    program = compile_program(graph, training, target=backend.target())
    return list(kernel_nodes(program.entries["train"]))


@contextmanager
def open_meter(board: Board, device: Device) -> Iterator[Meter]:
    """Yield the meter on a board; FarmError if there is none."""
    if isinstance(board.place, Local):
        yield host_meter(device)
    elif not board.emulated:
        from pockengine.farm.boards.connect import connect  # needs the farm's packages

        with connect(board) as transport:
            yield board_meter(transport, device)
    elif device.cpu.arch in COUNTERS:
        yield instruction_meter(device)
    else:
        raise FarmError(
            f"{board.name} is emulated, and instructions are counted on {', '.join(COUNTERS)} "
            f"only; name a physical {device.name} of the inventory"
        )


def instruction_meter(device: Device) -> Meter:
    """Return a meter by guest instructions of one thread, which are deterministic."""
    arch = device.cpu.arch
    unit = f"guest {COUNTERS[arch].unit} of 1 thread"

    def run(program: Path, kernels: int) -> list[Figure]:
        counted = count([str(program), "1", "count"], marks=kernels, arch=arch)
        return [Figure(region, region) for region in counted.regions]

    return bench_meter(device, run, unit, INSTRUCTIONS_MARGIN)


def board_meter(transport: Transport, device: Device) -> Meter:
    """Return a meter by time on a board, with as many threads as it has cores."""

    def run(program: Path, kernels: int) -> list[Figure]:
        job = Job(program, args=(str(device.cpu.cores),))
        printed = run_job(transport, job, program.parent / "results").run.stdout
        return as_figures(printed.decode(errors="replace"), kernels)

    return bench_meter(device, run, time_unit(device), TIME_NOISE)


def report(title: str, problems: Sequence[TuningProblem], table: TunedTable) -> Table:
    """Return a table of improved problems, largest gain in a step first."""
    printed = Table(title=title, caption=f"in {table.unit}, of one call", box=SIMPLE)
    for heading in ("problem", "calls", "default", "", "best", "", "gain"):
        printed.add_column(heading, justify="right" if heading in ("", "calls", "gain") else "left")
    rows = [(problem, table.rows[problem.key]) for problem in problems]
    for problem, row in sorted(rows, key=lambda pair: -_gain(*pair)):
        if row.plan != row.default:
            printed.add_row(
                problem.key,
                str(problem.calls),
                row.default,
                f"{row.default_value:,}",
                row.plan,
                f"{row.value:,}",
                f"{100 * (1 - row.value / row.default_value):.1f} %",
            )
    return printed


def _gain(problem: TuningProblem, row: TunedPlan) -> int:
    """Return a step's gain from a problem's plan."""
    return problem.calls * (row.default_value - row.value)


def summary(problems: Sequence[TuningProblem], table: TunedTable) -> str:
    """Report the predicted gain of a whole step."""
    rows = [(problem, table.rows[problem.key]) for problem in problems]
    gain = sum(_gain(problem, row) for problem, row in rows)
    whole = sum(problem.calls * row.default_value for problem, row in rows)
    won = sum(row.plan != row.default for _, row in rows)
    return (
        f"{won} of {len(rows)} problems gain; predicted for a step: {gain:,} of the {whole:,} "
        f"{table.unit} in these kernels ({100 * gain / max(whole, 1):.1f} %)"
    )
