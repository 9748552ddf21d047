"""`pockengine inspect MODEL --kernels`: the plans of products, and their alternatives."""

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.table import Table

from pockengine.backends.c.alternatives import Alternative, list_alternatives
from pockengine.backends.picking import cheapest
from pockengine.backends.placement import kernel_nodes
from pockengine.compiler.program import Program
from pockengine.devices.schema import DEFAULT_BACKEND, Device
from pockengine.errors import CompileError

CAPTION = """\
Modelled cycles of one call, as plans are compared; `pockengine tune` measures them."""


def alternatives_of(program: Program, device: Device) -> list[Alternative]:
    """Return the alternatives of a step's kernels; CompileError for another backend."""
    if device.backend != DEFAULT_BACKEND:
        raise CompileError(
            f"{device.name} uses the backend {device.backend}, which selects no kernels; "
            "leave --kernels out"
        )
    return list_alternatives(list(kernel_nodes(program.entries["train"])), device, cheapest)


def alternatives_table(rows: Sequence[Alternative]) -> Table:
    """Format them, most cycles first."""
    table = Table(title="kernels of a step", caption=CAPTION, box=SIMPLE)
    for heading in ("problem", "calls", "plan", "cycles", "runner-up", "cycles", "takes"):
        right = heading in ("calls", "cycles", "takes")
        table.add_column(heading, justify="right" if right else "left")
    for row in rows:
        second = (row.runner_up, f"{row.runner_up_cycles:,.0f}", _ratio(row))
        cells = second if row.runner_up else ("-", "", "")
        table.add_row(row.problem, str(row.calls), row.plan, f"{row.cycles:,.0f}", *cells)
    return table


def _ratio(row: Alternative) -> str:
    return f"{row.runner_up_cycles / row.cycles:.2f}x"
