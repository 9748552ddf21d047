"""The GPU backend, as used by the compiler and the code generator."""

from pathlib import Path

from pockengine.backends.gpu.emulated import HEADER, copy_dialect, emulate
from pockengine.backends.gpu.kernel import MOST_ELEMENTS, GpuKernel
from pockengine.backends.gpu.kernels import FAMILIES
from pockengine.backends.gpu.kernels.attention import LONGEST
from pockengine.backends.gpu.kernels.rows import IN_PLACE
from pockengine.backends.gpu.kernels.tiling import machine_of
from pockengine.backends.gpu.scalars import SCALARS
from pockengine.backends.native.build import build
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.native.package import cmake_lists, package
from pockengine.backends.native.program import generate
from pockengine.backends.native.runtime_files import GPU, LIBRARY, copy_runtime
from pockengine.backends.picking import Picker, cheapest
from pockengine.backends.placement import kernel_nodes, node_bytes
from pockengine.backends.protocol import Built, CodeFacts, Progress
from pockengine.compiler.ir import F32, Node
from pockengine.compiler.ops import lookup, node_cost
from pockengine.compiler.program import Program
from pockengine.compiler.target import (
    OPTIONAL,
    REDUCTION_OPERANDS,
    Choice,
    FusionRules,
    InPlace,
    MemorySpace,
    Target,
)
from pockengine.devices import Device, load_device
from pockengine.errors import CompileError

ALIGNMENT = 128
"""Alignment in bytes: a memory transaction of all supported GPUs."""

ISA = "gpu, emulated"

EXAMPLE = "jetson-orin"
"""The device whose GPU parameters are used if a device file has no [gpu] table."""

SHARED_BYTES = 32768
"""Maximum shared memory of a kernel in bytes: the minimum that OpenCL 1.2 guarantees."""

FUSION = FusionRules(
    epilogue=frozenset({"matmul", "conv2d", "conv2d_dx"}),
    update=frozenset({"matmul", "conv2d_dw"}),
    prologue=REDUCTION_OPERANDS,
)


class GpuBackend:
    """Emits kernels for GPUs, and a program that emulates them on the CPU.

    With `bf16` large products run on tensor cores, with operands rounded to bf16. `pick` picks the
    tiles of products.
    """

    header = HEADER

    def __init__(self, device: Device, bf16: bool = False, pick: Picker = cheapest) -> None:
        if device.freestanding:
            raise CompileError(
                f"{device.name} has no operating system, and no GPU; compile for it by the "
                "backend c"
            )
        gpu = device.graphics
        if gpu is not None and gpu.shared_bytes < SHARED_BYTES:
            raise CompileError(
                f"{device.name}: its GPU has {gpu.shared_bytes} bytes of shared memory, and "
                f"kernels take up to {SHARED_BYTES}; choose another device"
            )
        if bf16 and gpu is not None and not gpu.has_bf16:
            raise CompileError(
                f"{device.name} ({gpu.model}) has no bf16 products; compile for f32, or give "
                "bf16_lanes in its file's table [gpu]"
            )
        self.device = device
        self._machine = machine_of(gpu or load_device(EXAMPLE).gpu, bf16)
        self._pick = pick
        self._kernels: dict[Node, GpuKernel] = {}

    def target(self) -> Target:
        """Return the ops, the types and the fusions of the kernels."""
        return Target(
            FUSION,
            self.choose,
            f"gpu on {self.device.name}",
            ops=frozenset(FAMILIES),
            dtypes=frozenset(SCALARS),
            alignment=ALIGNMENT,
            passes=OPTIONAL - {"save_masks"},
            spaces=(MemorySpace(size=self.device.memory_bytes),),
            attention=LONGEST,
            in_place=InPlace(IN_PLACE),
        )

    def choose(self, node: Node) -> Choice:
        """Return the only choice for each node; CompileError for an unsupported node.

        Cycles are bytes moved, or equivalent multiply-adds.
        """
        kernel = self.gpu_kernel(node)
        work = max(node_bytes(node), node_cost(node) / self._machine.per_byte(kernel.tensor_cores))
        return Choice(anchor_of(node), float(work), kernel.scratch_bytes)

    def with_less_scratch(self) -> None:
        """Return None: no kernel can use less scratch."""

    def facts(self, program: Program) -> CodeFacts:
        """Return the facts of the emulation: one thread, and the number of distinct kernels."""
        nodes = (node for entry in program.entries.values() for node in kernel_nodes(entry))
        return CodeFacts(
            ISA, self.device.cpu.cores, len({self.kernel(node).symbol for node in nodes})
        )

    def write(self, program: Program, folder: Path) -> None:
        """Write the kernels, the program that launches them, and the emulation."""
        for name, text in generate(program, self).items():
            (folder / name).write_text(text, encoding="utf-8")
        lists = cmake_lists(program, self.device, (), (*LIBRARY, GPU))
        (folder / "CMakeLists.txt").write_text(lists, encoding="utf-8")
        copy_runtime(folder / "runtime")
        copy_dialect(folder / "runtime")

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build the emulation like any C program."""
        return build(code, self.device, out, progress)

    def package(self, program: Program, code: Path, place: Path) -> None:
        """Write the files that C and C++ programs link, with the emulation."""
        package(program, self.device, code, place)

    def kernel(self, node: Node, choice: Choice | None = None) -> Kernel:
        """Return the C function that emulates a node's kernel."""
        return emulate(self.gpu_kernel(node))

    def gpu_kernel(self, node: Node) -> GpuKernel:
        """Return the kernel of a node."""
        if node not in self._kernels:
            op = anchor_of(node)
            if op not in FAMILIES:
                raise CompileError(f"{node}: the GPU backend has no kernel for {op}")
            chosen_for = (self._machine, self._pick) if lookup(op).product else ()
            kernel = FAMILIES[op](node, *chosen_for)
            _check_sizes(node, kernel)
            self._kernels[node] = kernel
        return self._kernels[node]


def _check_sizes(node: Node, kernel: GpuKernel) -> None:
    """Raise CompileError for a tensor with more elements than an int can count."""
    tensors = (*node.operands, *node.results)
    largest = max(tensors, key=lambda value: value.type.size)
    scratch = kernel.scratch_bytes // F32.itemsize
    if max(largest.type.size, scratch) > MOST_ELEMENTS:
        what = f"{largest!r}" if largest.type.size > scratch else "its scratch memory"
        raise CompileError(
            f"{node}: {what} has {max(largest.type.size, scratch)} elements, and indices of "
            f"kernels go up to {MOST_ELEMENTS}: make the batch smaller"
        )


def anchor_of(node: Node) -> str:
    """Return the op around which a kernel is built."""
    nodes = node.attrs["body"].nodes if node.op == "fusion" else [node]
    anchors = (inner.op for inner in nodes if not lookup(inner.op).elementwise)
    return next(anchors, nodes[-1].op)
