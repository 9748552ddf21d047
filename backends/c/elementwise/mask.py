"""Kernels that pack masks to bits and unpack them: calls of pe_mask.h with constant sizes."""

from pockengine.backends.native.kernel import Kernel, define_kernel, read, write
from pockengine.backends.native.numbers import of_one_shape, passed
from pockengine.backends.native.text import fill
from pockengine.compiler.ir import Node
from pockengine.devices.schema import Device


def mask_kernel(node: Node, device: Device) -> Kernel:
    """Emit pack_mask or unpack_mask."""
    (x,), y = node.operands, node.result
    mask = x if node.op == "pack_mask" else y
    channels = mask.shape[-1]
    rows = mask.type.size // channels
    return define_kernel(
        name=f"pe_bool_{node.op}",
        shape=f"{rows}x{channels}",
        isa=device.cpu.isa,
        parameters=[read("x", x), write("y", y)],
        body=[fill("pe_{}(w, x, y, {}, {});", node.op, passed(rows), passed(channels))],
        prelude=of_one_shape(f"/* {node.op} of {rows} rows of {channels} */")
        + '\n#include "pe_mask.h"',
    )
