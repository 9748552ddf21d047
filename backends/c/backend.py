"""The C backend, as used by the compiler and the code generator.

One table maps each op (for a fusion: its anchor's) to its family of kernels.
"""

from pathlib import Path

from pockengine.backends.c.convolutions.conv import CONVOLUTION
from pockengine.backends.c.convolutions.pool import IMAGES as POOLINGS
from pockengine.backends.c.convolutions.pool import POOL
from pockengine.backends.c.elementwise.elementwise import ELEMENTWISE
from pockengine.backends.c.elementwise.mask import mask_kernel
from pockengine.backends.c.elementwise.movement import BOXES, BROADCAST, MOVEMENT
from pockengine.backends.c.elementwise.pick import PICK
from pockengine.backends.c.elementwise.randomness import OPS as RANDOM
from pockengine.backends.c.elementwise.randomness import random_kernel
from pockengine.backends.c.family import KernelFamily, single_kernel
from pockengine.backends.c.integers.integer import by_operands
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.products.attention import ATTENTION, LONGEST
from pockengine.backends.c.products.attention import OPS as ATTENTIONS
from pockengine.backends.c.products.gemm import MATMUL
from pockengine.backends.c.products.matrices import MATRICES
from pockengine.backends.c.products.matrices import OPS as MATRIX_OPS
from pockengine.backends.c.rows.ctc import CTC
from pockengine.backends.c.rows.gather import OPS as GATHERS
from pockengine.backends.c.rows.gather import (
    cache_update_kernel,
    gather_kernel,
    take_add_kernel,
    take_update_kernel,
)
from pockengine.backends.c.rows.reduction import KINDS as REDUCTIONS
from pockengine.backends.c.rows.reduction import REDUCTION
from pockengine.backends.c.rows.row_norm import OPS as ROW_NORMS
from pockengine.backends.c.rows.row_norm import ROW_NORM
from pockengine.backends.c.rows.scan import argmax_kernel, cumsum_kernel
from pockengine.backends.c.rows.softmax import KINDS as SOFTMAXES
from pockengine.backends.c.rows.softmax import SOFTMAX
from pockengine.backends.c.updates.blocks import blocks_kernel
from pockengine.backends.c.updates.blockwise import BLOCKWISE
from pockengine.backends.c.updates.update import UPDATE
from pockengine.backends.native.build import build
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.native.package import cmake_lists, package
from pockengine.backends.native.program import KERNEL_HEADER, generate
from pockengine.backends.native.runtime_files import copy_runtime
from pockengine.backends.picking import Picker, cheapest
from pockengine.backends.placement import anchor_op, kernel_nodes
from pockengine.backends.protocol import Built, CodeFacts, Progress
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.graph import Space
from pockengine.compiler.ir.key import Key, node_key
from pockengine.compiler.ops import all_ops
from pockengine.compiler.ops.attention import GRADIENTS
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.compiler.program import Program
from pockengine.compiler.target import (
    REDUCTION_OPERANDS,
    UNCHOSEN,
    Choice,
    FusionRules,
    InPlace,
    MemorySpace,
    Target,
)
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

FAMILIES: dict[str, KernelFamily] = {
    "matmul": by_operands(MATMUL),
    **dict.fromkeys(("conv2d", "conv2d_dx", "conv2d_dw"), by_operands(CONVOLUTION)),
    **dict.fromkeys(POOLINGS, POOL),
    **dict.fromkeys(BOXES, MOVEMENT),
    "broadcast_to": BROADCAST,
    "pick": PICK,
    **dict.fromkeys(("ctc_loss", "ctc_loss_dx"), CTC),
    "argmax": single_kernel(argmax_kernel),
    "cumsum": single_kernel(cumsum_kernel),
    **dict.fromkeys(("pack_mask", "unpack_mask"), single_kernel(mask_kernel)),
    "decode_blocks": single_kernel(blocks_kernel),
    **dict.fromkeys(REDUCTIONS, REDUCTION),
    **dict.fromkeys(SOFTMAXES, SOFTMAX),
    **dict.fromkeys(ROW_NORMS, ROW_NORM),
    **dict.fromkeys(GATHERS, single_kernel(gather_kernel)),
    "take_add": single_kernel(take_add_kernel),
    "take_update": single_kernel(take_update_kernel),
    "cache_update": single_kernel(cache_update_kernel),
    **dict.fromkeys(MATRIX_OPS, MATRICES),
    **dict.fromkeys(ATTENTIONS, ATTENTION),
    **dict.fromkeys(RANDOM, single_kernel(random_kernel)),
    **dict.fromkeys(FORMULAS, UPDATE),
    "blockwise_update": BLOCKWISE,
}
"""Kernel families by op; a fusion uses its anchor's op."""

FUSION = FusionRules(
    epilogue=frozenset({"matmul", "conv2d", "conv2d_dx"}),
    update=frozenset({"matmul", "conv2d_dw"}),
    joint=frozenset(GRADIENTS),
    decoding=frozenset({"matmul"}),
    prologue=REDUCTION_OPERANDS,
)


IN_PLACE = InPlace({"cross_entropy_dx": (0,), "take_add": (0,)}, epilogues=FUSION.epilogue)
"""Operands that a result may overwrite: kernels read an element last when they write the
result's. Epilogues store each element of a product once, after its sum is complete.
"""

OPS = frozenset(FAMILIES) | {op.name for op in all_ops() if op.elementwise}


class CBackend:
    """Emits kernels for one device, by `KernelOptions`. Each node's kernel is made once.

    CompileError for `bf16` on a device without such instructions, or `prepare` on one with flash.
    """

    header = KERNEL_HEADER

    def __init__(
        self,
        device: Device,
        *,
        winograd: bool = True,
        bf16: bool = False,
        pick: Picker = cheapest,
        packed: bool = True,
        prepare: bool = False,
    ) -> None:
        if bf16 and not device.cpu.bf16:
            raise CompileError(
                f"{device.name} ({device.cpu.model}) has no bf16 products; compile for f32"
            )
        if prepare and device.flash_bytes:
            raise CompileError(
                f"{device.name} holds frozen weights in flash, and has no memory for second forms "
                "of them; compile without prepare"
            )
        self.device = device
        self.options = KernelOptions(winograd, bf16, pick, packed=packed, prepare=prepare)
        self._choices: dict[Key, Choice] = {}
        self._kernels: dict[Node, tuple[Choice, Kernel]] = {}

    def with_less_scratch(self) -> "CBackend":
        """The same backend without Winograd's method, packed bytes and fused attention.

        These need the most scratch.
        """
        bf16, pick = self.options.bf16, self.options.pick
        return CBackend(self.device, winograd=False, bf16=bf16, pick=pick, packed=False)

    def facts(self, program: Program) -> CodeFacts:
        """Return the ISA, the cores, and the number of distinct kernels."""
        symbols = {
            self.kernel(node, entry.choices.get(node)).symbol
            for entry in program.entries.values()
            for node in kernel_nodes(entry)
        }
        return CodeFacts(self.device.cpu.isa, self.device.cpu.cores, len(symbols))

    def write(self, program: Program, folder: Path) -> None:
        """Write generated C and the runtime: everything that a C compiler needs."""
        for name, text in generate(program, self).items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "CMakeLists.txt").write_text(cmake_lists(program, self.device), encoding="utf-8")
        copy_runtime(folder / "runtime")

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build the runner, and for this machine the library."""
        return build(code, self.device, out, progress)

    def package(self, program: Program, code: Path, place: Path) -> None:
        """Write the files that C and C++ programs link: headers, archives, CMake and pkg-config
        files.
        """
        package(program, self.device, code, place)

    def supports(self, node: Node) -> bool:
        """Whether this backend has a kernel for the node."""
        try:
            self.kernel(node)
        except CompileError:
            return False
        return True

    def choose(self, node: Node) -> Choice:
        """Choose how to compute a node; equal for nodes that differ only in names.

        CompileError for an unsupported node.
        """
        key = node_key(node)  # not the node, which would keep its whole graph alive
        if key not in self._choices:
            self._choices[key] = self._family(node).choose(node, self.device, self.options)
        return self._choices[key]

    def kernel(self, node: Node, choice: Choice | None = None) -> Kernel:
        """Emit the kernel of a node by its choice, or by this backend's choice.

        CompileError if it would need more scratch than planned.
        """
        if choice is None or choice is UNCHOSEN:
            choice = self.choose(node)
        known, kernel = self._kernels.get(node, (None, None))
        if kernel is None or known is not choice:
            kernel = self._family(node).emit(node, choice, self.device)
            if kernel.scratch_bytes != choice.scratch_bytes:
                raise CompileError(
                    f"{node}: {kernel.symbol} needs {kernel.scratch_bytes} bytes of scratch, and "
                    f"{choice.label} was planned with {choice.scratch_bytes}"
                )
            self._kernels[node] = choice, kernel
        return kernel

    def timed(self, node: Node, choice: Choice | None = None) -> tuple[str, int]:
        """Return a kernel's symbol, and that it is timed as one call."""
        return self.kernel(node, choice).symbol, 1

    def scratch_bytes(self, node: Node) -> int:
        """Arena bytes that the node's kernel needs while it runs."""
        return self.choose(node).scratch_bytes

    def target(self) -> Target:
        """The compiler's target.

        Attention is not fused if memory matters most: tiled blocks of rows then take less than the
        scratch of all threads.
        """
        return Target(
            FUSION,
            self.choose,
            self.device.name,
            OPS,
            spaces=_spaces(self.device),
            in_place=IN_PLACE,
            attention=LONGEST if self.options.packed else 0,
            triangles_alone=True,
        )

    def _family(self, node: Node) -> KernelFamily:
        op = anchor_op(node)
        if op is None:
            return ELEMENTWISE
        if op not in FAMILIES:
            known = ", ".join(sorted(FAMILIES))
            raise CompileError(f"{node}: the C backend has no kernel for {op}; it has {known}")
        return FAMILIES[op]


def _spaces(device: Device) -> tuple[MemorySpace, ...]:
    """Return the memories of a device: frozen params are in flash, if it has any."""
    if not device.flash_bytes:
        return (MemorySpace(size=device.memory_bytes),)
    return (
        MemorySpace("flash", device.flash_bytes, frozenset({Space.CONSTANT})),
        MemorySpace("memory", device.memory_bytes, frozenset({Space.MUTABLE})),
    )
