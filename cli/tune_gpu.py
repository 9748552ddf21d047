"""`pockengine tune MODEL --backend cuda|opencl|vulkan`: measure tiles of products on a GPU."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pockengine.backends.gpu.source import LANGUAGES
from pockengine.backends.gpu.tune import UNIT, GpuTuner
from pockengine.backends.native.profile import RunProfile, Timed
from pockengine.backends.native.tuning import TuningProblem, tune
from pockengine.backends.placement import kernel_nodes
from pockengine.backends.tuned import TunedTable, gpu_name, new_table, read_table, write_table
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.devices import load_device
from pockengine.errors import CompileError, FarmError
from pockengine.farm.boards.board import Board, Local
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.transports.transport import Transport

GPUS = LANGUAGES
"""The backends that this command tunes."""


def tune_gpu(
    graph: Graph,
    training: Training,
    board: Board,
    out: Path,
    how: tuple[str, bool, int],
    tell: Callable[[str], None],
) -> tuple[list[TuningProblem], TunedTable]:
    """Tune the products of a step into a table's file; return them, and the table.

    `how` is the backend, whether to use bf16 tensor cores, and the number of plans per product.
    FarmError for a board that is emulated, CompileError for a table in other units.
    """
    name, bf16, plans = how
    device = load_device(board.device).on(name)
    if board.emulated:
        raise FarmError(
            f"{board.name} is emulated, so its time is not that of a GPU; name a physical "
            f"{device.name} of the inventory"
        )
    tuner, processor = GpuTuner(device, bf16), gpu_name(device)

    def compiled(backend: Timed) -> Program:
        return compile_program(graph, training, target=backend.target())

    tell(f"listing plans for {device.name}")
    nodes = kernel_nodes(compiled(tuner.backend()).entries["train"])
    problems = tuner.problems(nodes, plans)
    table = (
        read_table(out, device, processor) if out.exists() else new_table(device, UNIT, processor)
    )
    if table.unit != UNIT:
        raise CompileError(
            f"tuned plans {out} are in {table.unit}, those of a GPU in {UNIT}; give another --out"
        )
    with _runs_on(board) as run:
        meter = tuner.meter(compiled, run, tell)
        table = tune(problems, meter, table, save=partial(write_table, path=out), progress=tell)
    return problems, table


@contextmanager
def _runs_on(board: Board) -> Iterator[RunProfile | None]:
    """Yield the function that runs a profiled program on a board; None for this machine."""
    if isinstance(board.place, Local):
        yield None
        return
    from pockengine.farm.boards.connect import connect  # needs the farm's packages

    with connect(board) as transport:
        yield run_over(transport)


def run_over(transport: Transport) -> RunProfile:
    """Return the function that runs a profiled program over a transport."""

    def run(runner: Path, files: Mapping[str, Path], arguments: Sequence[str]) -> str:
        names = {name: name for name in files}
        args = tuple(argument.format_map(names) for argument in arguments)
        done = run_job(transport, Job(runner, args, files), runner.parent / "results")
        return done.run.stdout.decode(errors="replace")

    return run
