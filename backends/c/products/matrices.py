"""Kernels of matrix factorizations and solves, matrix by matrix.

Their templates are runtime/kernels/matrices.inc.h, factors.inc.h and eigen.inc.h.
"""

import math

from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.native.kernel import SYMBOL, Kernel, define_kernel, read, write
from pockengine.compiler.ir import Node
from pockengine.compiler.ops import lookup
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

FACTORS = ("lu", "qr")
"""Ops of factors.inc.h."""

TEMPLATES = {**dict.fromkeys(FACTORS, "factors"), "eig": "eigen"}
"""Templates of ops that matrices.inc.h lacks."""

OPS = ("cholesky", "eig", "eigh", *FACTORS, "slogdet", "solve", "svd", "triangular_solve")


def _shape(node: Node) -> tuple[int, int, int, int]:
    """Matrices, their rows and columns, and right-hand sides."""
    *batch, rows, columns = node.operands[0].shape
    sides = node.operands[1].shape[-1] if len(node.operands) > 1 else 0
    return math.prod(batch), rows, columns, sides


def _room(node: Node) -> int:
    """Scratch doubles of the template per matrix."""
    _, rows, columns, sides = _shape(node)
    least = min(rows, columns)
    return {
        "triangular_solve": rows,
        "solve": rows * (rows + sides),
        "eig": 4 * columns * columns + 5 * columns,
        "eigh": 2 * rows * rows,
        "svd": rows * columns + least * least + least,
        "qr": rows * columns + columns + rows,
        "lu": rows * columns + rows,
    }.get(node.op, rows * rows)


def choose_matrices(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Allocate each matrix's scratch."""
    return plain_choice(node, device, scratch_bytes=8 * _shape(node)[0] * _room(node))


def emit_matrices(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit an op of OPS."""
    count, rows, columns, sides = _shape(node)
    macros = {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_COUNT": count,
        "PE_ROWS": rows,
        "PE_COLUMNS": columns,
        "PE_SIDES": sides,
        "PE_KIND": f"PE_{node.op.upper()}",
        "PE_LOWER": int(node.attrs.get("lower", False)),
        "PE_TRANSPOSED": int(node.attrs.get("transpose", False)),
        "PE_UNIT": int(node.attrs.get("unit", False)),
    }
    names = lookup(node.op).operands
    parameters = [read(name, value) for name, value in zip(names, node.operands, strict=True)]
    parameters.append(write("y", node.result))
    results = node.result.type.size // count
    template = TEMPLATES.get(node.op, "matrices")
    right = names[1] if len(names) > 1 else "a"
    return define_kernel(
        name=f"pe_f32_{node.op}_{count}x{rows}x{columns}",
        isa=device.cpu.isa,
        parameters=parameters,
        body=[f"{SYMBOL}_run(w, a, {right}, y, {results}, {_room(node)}, scratch);"],
        prelude="\n".join(
            [
                f"/* {node.op} of {count} matrices [{rows},{columns}] */",
                *(f"#define {name} {value}" for name, value in macros.items()),
                f'#include "kernels/{template}.inc.h"',
            ]
        ),
        scratch_bytes=choice.scratch_bytes,
    )


MATRICES = KernelFamily(choose_matrices, emit_matrices)
