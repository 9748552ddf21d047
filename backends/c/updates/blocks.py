"""Kernels that decode block-quantized weights: calls of pe_blocks.h with constant sizes."""

import math

from pockengine.backends.native.kernel import Kernel, define_kernel, read, write
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.blocks import BLOCK
from pockengine.devices.schema import Device


def blocks_kernel(node: Node, device: Device) -> Kernel:
    """Emit decode_blocks."""
    (codes, scales), y = node.operands, node.result
    bits, axis = node.attrs["bits"], node.attrs["axis"]
    inner = math.prod(y.shape[axis + 1 :])
    blocks = y.type.size // (BLOCK * inner)
    call = f"pe_decode_rows{bits}(w, codes, scales, y, {blocks});"
    if inner > 1:
        call = f"pe_decode_blocks{bits}(w, codes, scales, y, {blocks}, {inner});"
    return define_kernel(
        name=f"pe_f32_{node.op}{bits}_{blocks}x{inner}",
        isa=device.cpu.isa,
        parameters=[read("codes", codes), read("scales", scales), write("y", y)],
        body=[call],
        prelude=f'/* {node.op} of {codes.type} */\n#include "pe_blocks.h"',
    )
