"""Kernels of integer reductions: scalar loops, as they are rare and small.

Sums and products wrap, as in the frameworks.
"""

import math
from collections.abc import Sequence

from pockengine.backends.native.kernel import Kernel, define_kernel, read, write
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.space import contiguous_strides
from pockengine.compiler.ir import I32, I64, Node
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

STEPS = {
    "reduce_sum": "result = ({c})((u{c})result + (u{c})x[at]);",
    "reduce_prod": "result = ({c})((uint64_t)result * (uint64_t)x[at]);",
    "reduce_max": "result = x[at] > result ? x[at] : result;",
    "reduce_min": "result = x[at] < result ? x[at] : result;",
}
STARTS = {"reduce_sum": "0", "reduce_prod": "1"}


def check_whole_reduction(node: Node) -> None:
    """Raise CompileError unless there is a kernel for this integer reduction."""
    dtype = node.operands[0].dtype
    if dtype not in (I32, I64) or node.op not in STEPS:
        raise CompileError(f"{node}: the C backend has no {node.op} of {dtype.value}; cast it")


def whole_reduction_kernel(node: Node, device: Device) -> Kernel:
    """Emit a sum, product or extreme of i32 or i64; threads split the results."""
    (x,), y, axes = node.operands, node.result, node.attrs["axes"]
    outer = [axis for axis in range(len(x.shape)) if axis not in axes]
    ctype, shape = c_scalar(x.dtype).ctype, "x".join(map(str, x.shape))
    count = math.prod(x.shape[axis] for axis in axes)
    return define_kernel(
        name=f"pe_{x.dtype.value}_{node.op}_{shape}",
        isa=device.cpu.isa,
        parameters=[read("x", x), write("y", y)],
        body=[
            f"const pe_range share = pe_split(w, {y.type.size}, 16);",
            "for (ptrdiff_t line = share.begin; line < share.end; line++) {",
            f"    const ptrdiff_t first = {_offset('line', outer, x.shape)};",
            f"    {ctype} result = {STARTS.get(node.op, 'x[first]')};",
            f"    for (ptrdiff_t n = 0; n < {count}; n++) {{",
            f"        const ptrdiff_t at = first + {_offset('n', axes, x.shape)};",
            f"        {STEPS[node.op].format(c=ctype)}",
            "    }",
            "    y[line] = result;",
            "}",
        ],
        prelude=f"/* {node.op} of {list(x.shape)} over {list(axes)} */",
    )


def _offset(index: str, axes: Sequence[int], shape: Sequence[int]) -> str:
    """The offset of the index-th combination of some axes of a row-major tensor."""
    own = contiguous_strides([shape[axis] for axis in axes])
    strides = contiguous_strides(shape)
    terms = [
        f"{index} / {inner} % {shape[axis]} * {strides[axis]}"
        for axis, inner in zip(axes, own, strict=True)
        if shape[axis] > 1
    ]
    return " + ".join(terms) or "0"
