"""`pockengine tune MODEL --backend tvm`: TVM's tuner on the costliest kernels of a step."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.backends.protocol import BackendOptions
from pockengine.backends.registry import backend_for
from pockengine.backends.tuned import TunedTable, new_table, read_table, write_table
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.options import Training
from pockengine.devices import Device
from pockengine.errors import CompileError

if TYPE_CHECKING:
    from pockengine.backends.tvm.tune import TvmProblem

TVM = "tvm"

TRIALS, LEAST_TRIALS = 64, 8
"""Default schedules tried per kernel, and the minimum of a search."""

KERNELS = 6
"""Default number of tuned kernels."""


def tune_tvm(
    title: str,
    graph: Graph,
    training: Training,
    device: Device,
    out: Path,
    amount: tuple[int, int],
) -> Table:
    """Tune a step's kernels into a table file; return a summary.

    `amount` are the trials per kernel, and the number of kernels.
    """
    trials, most = amount
    backend = backend_for(device.on(TVM), BackendOptions())
    from pockengine.backends.tvm.backend import load_model  # TVM is installed: the backend exists
    from pockengine.backends.tvm.tune import UNIT, TunerOptions, find_problems, tune

    program = compile_program(graph, training, target=backend.target())
    _tell("timing the step's kernels as they are")
    with tempfile.TemporaryDirectory(prefix="pockengine-tvm-") as folder:
        backend.write(program, Path(folder))
        problems = find_problems(load_model(Path(folder), "train"), device)
    table = read_table(out, device) if out.exists() else new_table(device, UNIT)
    if table.unit != UNIT:
        raise CompileError(
            f"tuned plans {out} are in {table.unit}, those of TVM in {UNIT}; give another --out"
        )

    def keep(partial: TunedTable) -> None:
        write_table(partial, out)

    chosen = problems[:most]
    table = tune(chosen, device, table, keep=keep, tell=_tell, options=TunerOptions(trials))
    return _report(title, problems, chosen, table)


def _report(
    title: str, problems: Sequence["TvmProblem"], chosen: Sequence["TvmProblem"], table: TunedTable
) -> Table:
    """Return each kernel's gain, and the predicted gain of a step."""
    printed = Table(title=title, box=SIMPLE)
    for heading in ("kernel", "calls", "default", "best", "gain"):
        printed.add_column(heading, justify="left" if heading == "kernel" else "right")
    gain = 0
    for problem in chosen:
        row = table.rows[problem.key]
        gain += problem.calls * (row.default_value - row.value)
        won = (
            f"{100 * (1 - row.value / row.default_value):.1f} %" if row.plan != row.default else "-"
        )
        figures = f"{row.default_value:,}", f"{row.value:,}"
        printed.add_row(problem.name, str(problem.calls), *figures, won)
    whole = sum(round(1e9 * each.seconds) * each.calls for each in problems)
    printed.caption = (
        f"in {table.unit}, of one call; predicted for a step: {gain:,} of the {whole:,} in all "
        f"{len(problems)} kernels that sum ({100 * gain / max(whole, 1):.1f} %)"
    )
    return printed


def _tell(text: str) -> None:
    click.echo(text, err=True)
