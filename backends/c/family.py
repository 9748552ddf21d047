"""A family of kernels: first choose parameters, then emit C."""

from collections.abc import Callable
from dataclasses import dataclass

from pockengine.backends.c.modelled import plain_cycles
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.native.kernel import Kernel
from pockengine.compiler.ir import Node
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device


@dataclass(frozen=True)
class KernelFamily:
    """Two functions: `choose` returns the parameters, `emit` the kernel for them."""

    choose: Callable[[Node, Device, KernelOptions], Choice]
    emit: Callable[[Node, Choice, Device], Kernel]


def plain_choice(
    node: Node, device: Device, label: str = "", *, scratch_bytes: int = 0, spec: object = None
) -> Choice:
    """Choose a kernel without a plan: cycles are estimated from its work and traffic."""
    return Choice(label or node.op, plain_cycles(node, device), scratch_bytes, spec)


def single_kernel(kernel: Callable[[Node, Device], Kernel]) -> KernelFamily:
    """A family with only one kind of kernel, and no scratch."""
    return KernelFamily(
        lambda node, device, options: plain_choice(node, device),
        lambda node, choice, device: kernel(node, device),
    )
