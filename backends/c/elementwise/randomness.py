"""Kernels of random numbers and dropout: runtime/core/pe_random.h, a number for each element."""

from pockengine.backends.native.expression import scalar
from pockengine.backends.native.kernel import Kernel, define_kernel, read, write
from pockengine.compiler.ir import Node
from pockengine.compiler.ops import lookup
from pockengine.compiler.ops.random import scale_up
from pockengine.devices.schema import Device

OPS = ("random_uniform", "dropout")


def random_kernel(node: Node, device: Device) -> Kernel:
    """Emit one of OPS."""
    size, stream = node.result.type.size, node.attrs["stream"] & 0xFFFFFFFF
    value = "pe_uniform(key, (uint32_t)i)"
    if node.op == "dropout":
        drop, keep = scalar(node.attrs["p"]), scalar(scale_up(node.attrs["p"]))
        value = f"{value} >= {drop} ? x[i] * {keep} : 0.0f"
    names = lookup(node.op).operands
    parameters = [read(name, operand) for name, operand in zip(names, node.operands, strict=True)]
    return define_kernel(
        name=f"pe_f32_{node.op}_{size}",
        isa=device.cpu.isa,
        parameters=[*parameters, write("y", node.result)],
        body=[
            f"const uint32_t key = pe_random_key(seed[0], {stream}U);",
            f"const pe_range share = pe_split(w, {size}, 64);",
            "for (ptrdiff_t i = share.begin; i < share.end; i++) {",
            f"    y[i] = {value};",
            "}",
        ],
        prelude=f'/* {node.op} of {size} elements */\n#include "pe_random.h"',
    )
