"""Kernels of softmax, log-softmax and cross entropy: runtime/kernels/softmax.inc.h, by rows."""

from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.rows.rows import RowCut, cut_rows
from pockengine.backends.native.kernel import SYMBOL, Kernel, define_kernel, read, write
from pockengine.backends.native.scalars import c_scalar
from pockengine.compiler.ir import I32, Node
from pockengine.compiler.ops import lookup
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

KINDS = {
    "softmax": "PE_SOFTMAX",
    "log_softmax": "PE_LOG_SOFTMAX",
    "cross_entropy": "PE_CROSS_ENTROPY",
    "cross_entropy_dx": "PE_CROSS_ENTROPY_DX",
}


def choose_softmax(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Partition an op of KINDS into rows; a loss stores one number per row."""
    cut = cut_rows(node.operands[0], device)
    scratch = 4 * cut.rows if node.op == "cross_entropy" else 0
    return plain_choice(node, device, cut.label, scratch_bytes=scratch, spec=cut)


def emit_softmax(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit an op of KINDS."""
    cut = choice.spec
    assert isinstance(cut, RowCut)
    names = lookup(node.op).operands
    labels = node.operands[1].dtype if len(node.operands) > 1 else I32
    macros = {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": cut.lanes,
        "PE_ROWS": cut.rows,
        "PE_COLUMNS": cut.columns,
        "PE_KIND": KINDS[node.op],
        "PE_LABEL": c_scalar(labels).ctype,
        "PE_IGNORE": node.attrs.get("ignore_index", 0),
    }
    parameters = [read(name, value) for name, value in zip(names, node.operands, strict=True)]
    parameters.append(write("y", node.result))
    arguments = ", ".join(["w", *names, "y"])
    loss = node.op == "cross_entropy"
    prelude = [
        f"/* {node.op} of [{cut.rows},{cut.columns}] */",
        *(f"#define {name} {value}" for name, value in macros.items()),
        '#include "kernels/softmax.inc.h"',
    ]
    return define_kernel(
        name=f"pe_f32_{node.op}_{cut.rows}x{cut.columns}",
        isa=device.cpu.isa,
        parameters=parameters,
        body=[f"{SYMBOL}_run({arguments}{', scratch' if loss else ''});"],
        prelude="\n".join(prelude),
        scratch_bytes=choice.scratch_bytes,
    )


SOFTMAX = KernelFamily(choose_softmax, emit_softmax)
