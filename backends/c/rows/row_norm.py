"""Kernels of layer norm and RMS norm and of their gradients: runtime/kernels/row_norm.inc.h."""

from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.rows.rows import RowCut, cut_rows
from pockengine.backends.native.expression import scalar
from pockengine.backends.native.kernel import SYMBOL, Kernel, define_kernel, read, write
from pockengine.compiler.ir import Node
from pockengine.compiler.ops import lookup
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

OPS = ("layer_norm", "rms_norm", "layer_norm_dx", "rms_norm_dx")


def choose_row_norm(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Partition an op of OPS into rows."""
    cut = cut_rows(node.operands[0], device)
    return plain_choice(node, device, cut.label, spec=cut)


def emit_row_norm(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit an op of OPS."""
    cut = choice.spec
    assert isinstance(cut, RowCut)
    macros = {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": cut.lanes,
        "PE_ROWS": cut.rows,
        "PE_COLUMNS": cut.columns,
        "PE_CENTERED": int(node.op.startswith("layer")),
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
        f"/* {node.op} of [{cut.rows},{cut.columns}] */",
        *(f"#define {name} {value}" for name, value in macros.items()),
        '#include "kernels/row_norm.inc.h"',
    ]
    return define_kernel(
        name=f"pe_f32_{node.op}_{cut.rows}x{cut.columns}",
        isa=device.cpu.isa,
        parameters=parameters,
        body=[call],
        prelude="\n".join(prelude),
    )


ROW_NORM = KernelFamily(choose_row_norm, emit_row_norm)
