"""The text of a program's kernels in the Metal Shading Language.

There is no backend for Metal: nothing launches these kernels. A text is checked as
docs/gpu.md says, and has not run on a GPU of Apple.
"""

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.kernel import GpuKernel
from pockengine.backends.gpu.source import METAL, source_of
from pockengine.backends.placement import kernel_nodes
from pockengine.compiler.program import Program
from pockengine.devices import load_device


def metal_text(program: Program) -> str:
    """Return the kernels of a program that was compiled for the backend `gpu`, as one Metal file.

    Its head lists the launches of each kernel, in order. Buffer n is pointer n of a kernel: the
    operands of its node, its results, then scratch memory if it has any. CompileError for a node
    without a kernel, or a kernel with more pointers than Metal has buffers.
    """
    backend = GpuBackend(load_device("host"))
    nodes = (node for entry in program.entries.values() for node in kernel_nodes(entry))
    kernels = {kernel.symbol: kernel for kernel in map(backend.gpu_kernel, nodes)}
    lines = [_launches(kernels[symbol]) for symbol in sorted(kernels)]
    return "\n".join([*lines, source_of(kernels.values(), METAL)])


def _launches(kernel: GpuKernel) -> str:
    launches = (
        f"{launch.function}: {launch.groups} threadgroups of {launch.items} threads"
        for launch in kernel.launches
    )
    scratch = f"; {kernel.scratch_bytes} bytes of scratch memory" if kernel.scratch_bytes else ""
    return f"// {', then '.join(launches)}{scratch}"
