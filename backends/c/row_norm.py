"""Kernels of layer norm and RMS norm and of their gradients: runtime/kernels/row_norm.inc.h."""

import math

from pockengine.backends.c.expression import scalar
from pockengine.backends.c.kernel import SYMBOL, Kernel, define_kernel, read, write
from pockengine.backends.c.loops import lanes_for
from pockengine.backends.c.tile import machine_of
from pockengine.compiler.ir import Node
from pockengine.compiler.ops import lookup
from pockengine.devices.schema import Device

OPS = ("layer_norm", "rms_norm", "layer_norm_dx", "rms_norm_dx")


def row_norm_kernel(node: Node, device: Device) -> Kernel:
    """Emit one of OPS."""
    shape = node.operands[0].shape
    rows, columns = math.prod(shape[:-1]), shape[-1]
    macros = {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": lanes_for(columns, machine_of(device).lanes),
        "PE_ROWS": rows,
        "PE_COLUMNS": columns,
        "PE_CENTRED": int(node.op.startswith("layer")),
    }
    names = lookup(node.op).operands
    parameters = [read(name, value) for name, value in zip(names, node.operands, strict=True)]
    if node.op.endswith("_dx"):
        results, call = ["dx"], f"{SYMBOL}_backward(w, dy, y, rstd, dx);"
    else:
        eps = scalar(node.attrs["eps"])
        results, call = ["y", "rstd"], f"{SYMBOL}_forward(w, x, y, rstd, {eps});"
    parameters += [write(name, value) for name, value in zip(results, node.results, strict=True)]
    prelude = [
        f"/* {node.op} of [{rows},{columns}] */",
        *(f"#define {name} {value}" for name, value in macros.items()),
        '#include "kernels/row_norm.inc.h"',
    ]
    return define_kernel(
        name=f"pe_f32_{node.op}_{rows}x{columns}",
        isa=device.cpu.isa,
        parameters=parameters,
        body=[call],
        prelude="\n".join(prelude),
    )
