"""Kernels of softmax, log-softmax and cross entropy: runtime/kernels/softmax.inc.h by rows."""

import math

from pockengine.backends.c.kernel import C_TYPES, SYMBOL, Kernel, define_kernel, read, write
from pockengine.backends.c.loops import lanes_for
from pockengine.backends.c.tile import machine_of
from pockengine.compiler.ir import I32, Node
from pockengine.compiler.ops import lookup
from pockengine.devices.schema import Device

KINDS = {
    "softmax": "PE_SOFTMAX",
    "log_softmax": "PE_LOG_SOFTMAX",
    "cross_entropy": "PE_CROSS_ENTROPY",
    "cross_entropy_dx": "PE_CROSS_ENTROPY_DX",
}


def softmax_kernel(node: Node, device: Device) -> Kernel:
    """Emit one of KINDS."""
    x = node.operands[0]
    rows, columns = math.prod(x.shape[:-1]), x.shape[-1]
    names = lookup(node.op).operands
    labels = node.operands[1].dtype if len(node.operands) > 1 else I32
    macros = {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": lanes_for(columns, machine_of(device).lanes),
        "PE_ROWS": rows,
        "PE_COLUMNS": columns,
        "PE_KIND": KINDS[node.op],
        "PE_LABEL": C_TYPES[labels],
        "PE_IGNORE": node.attrs.get("ignore_index", 0),
    }
    parameters = [read(name, value) for name, value in zip(names, node.operands, strict=True)]
    parameters.append(write("y", node.result))
    arguments = ", ".join(["w", *names, "y"])
    loss = node.op == "cross_entropy"
    prelude = [
        f"/* {node.op} of [{rows},{columns}] */",
        *(f"#define {name} {value}" for name, value in macros.items()),
        '#include "kernels/softmax.inc.h"',
    ]
    return define_kernel(
        name=f"pe_f32_{node.op}_{rows}x{columns}",
        isa=device.cpu.isa,
        parameters=parameters,
        body=[f"{SYMBOL}_run({arguments}{', scratch' if loss else ''});"],
        prelude="\n".join(prelude),
        scratch_bytes=4 * rows if loss else 0,
    )
