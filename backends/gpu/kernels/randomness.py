"""Kernels of random numbers and dropout: one number per element, by its index."""

from pockengine.backends.gpu.kernel import GpuKernel, define_kernel, over, read, write
from pockengine.backends.gpu.scalars import literal
from pockengine.compiler.ir import F32, Node
from pockengine.compiler.ops import lookup
from pockengine.compiler.ops.random import scale_up

OPS = ("random_uniform", "dropout")


def random_kernel(node: Node) -> GpuKernel:
    """Emit one of OPS."""
    value = f"pe_uniform(seed[0], {node.attrs['stream'] & 0xFFFFFFFF}u, i)"
    if node.op == "dropout":
        drop, keep = (literal(x, F32) for x in (node.attrs["p"], scale_up(node.attrs["p"])))
        value = f"{value} >= {drop} ? x[i] * {keep} : 0.0f"
    names = zip(lookup(node.op).operands, node.operands, strict=True)
    parameters = [*(read(*each) for each in names), write("y", node.result)]
    return define_kernel(node.op, parameters, [over(node.result.type.size, [f"y[i] = {value};"])])
