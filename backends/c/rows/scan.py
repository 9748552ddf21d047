"""Kernels that scan one axis in order: cumulative sums and argmax. Threads split the other axes."""

import math
from collections.abc import Sequence

from pockengine.backends.native.kernel import Kernel, define_kernel, read, write
from pockengine.backends.native.scalars import c_scalar
from pockengine.compiler.ir import F32, Node
from pockengine.devices.schema import Device


def cumsum_kernel(node: Node, device: Device) -> Kernel:
    """Emit cumsum; floats are summed in double precision, as rounding errors would accumulate."""
    ctype = c_scalar(node.result.dtype).ctype
    wide = "double" if node.result.dtype is F32 else ctype
    body = [f"{wide} total = 0;", *_walk(node, ["total += x[at];", f"y[at] = ({ctype})total;"])]
    return _kernel(node, body, device)


def argmax_kernel(node: Node, device: Device) -> Kernel:
    """Emit argmax: the first maximum; NaN counts as the largest, as in NumPy."""
    ctype = c_scalar(node.operands[0].dtype).ctype
    better = "x[at] > best || (x[at] != x[at] && best == best)"
    body = [
        "int64_t found = 0;",
        f"{ctype} best = x[first];",
        *_walk(node, [f"if ({better}) {{", "    best = x[at];", "    found = n;", "}"]),
        "y[line] = found;",
    ]
    return _kernel(node, body, device)


def _walk(node: Node, steps: Sequence[str]) -> list[str]:
    size, behind = _sizes(node)[1:]
    backward = node.attrs.get("reverse", False)
    n = f"{size - 1} - n" if backward else "n"
    return [
        f"for (ptrdiff_t n = 0; n < {size}; n++) {{",
        f"    const ptrdiff_t at = first + ({n}) * {behind};",
        *(f"    {step}" for step in steps),
        "}",
    ]


def _sizes(node: Node) -> tuple[int, int, int]:
    """Elements before the axis, along it, and after it."""
    shape, axis = node.operands[0].shape, node.attrs["axis"]
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _kernel(node: Node, body: Sequence[str], device: Device) -> Kernel:
    before, size, behind = _sizes(node)
    x = node.operands[0]
    shape = f"{before}x{size}x{behind}"
    return define_kernel(
        name=f"pe_{x.dtype.value}_{node.op}_{shape}",
        isa=device.cpu.isa,
        parameters=[read("x", x), write("y", node.result)],
        body=[
            f"const pe_range share = pe_split(w, {before * behind}, 16);",
            "for (ptrdiff_t line = share.begin; line < share.end; line++) {",
            f"    const ptrdiff_t first = line / {behind} * {size * behind} + line % {behind};",
            *(f"    {step}" for step in body),
            "}",
        ],
        prelude=f"/* {node.op} over the middle of {shape} */",
    )
