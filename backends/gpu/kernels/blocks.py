"""The kernel that decodes block-quantized weights (compiler/ir/blocks.py)."""

import math

from pockengine.backends.gpu.kernel import GpuKernel, define_kernel, over, read, write
from pockengine.backends.gpu.scalars import scalar_of
from pockengine.compiler.ir import DType, Node
from pockengine.compiler.ir.blocks import BLOCK


def blocks_kernel(node: Node) -> GpuKernel:
    """Emit decode_blocks: one item per number; adjacent items read adjacent codes."""
    (codes, scales), y = node.operands, node.result
    inner = math.prod(y.shape[node.attrs["axis"] + 1 :])
    lines = [
        f"const int behind = i % {inner}, row = i / {inner};",
        f"const int block = row / {BLOCK}, place = row % {BLOCK};",
    ]
    code = "codes[i]"
    if node.attrs["bits"] == 4:  # a byte holds a code of the first half and one of the second
        half = BLOCK // 2
        at = f"(block * {half} + place % {half}) * {inner} + behind"
        lines.append(f"const int pair = codes[{at}];")
        code = f"(place < {half} ? pair & 15 : pair >> 4) - 8"
    scale = scalar_of(DType.F16).load.format("scales", f"block * {inner} + behind")
    lines.append(f"y[i] = (float)({code}) * {scale};")
    parameters = [read("codes", codes), read("scales", scales), write("y", y)]
    return define_kernel(node.op, parameters, [over(y.type.size, lines)])
