"""The C backend as the compiler and the program's writer see it: which nodes, which kernels.

One table maps each op (of a fusion: its anchor's) to the function that emits it.
"""

from collections.abc import Callable
from functools import partial

from pockengine.backends.c.conv import conv_kernel
from pockengine.backends.c.elementwise import elementwise_kernel
from pockengine.backends.c.gather import OPS as GATHERS
from pockengine.backends.c.gather import gather_kernel, take_update_kernel
from pockengine.backends.c.gemm import matmul_kernel
from pockengine.backends.c.kernel import Kernel
from pockengine.backends.c.mask import mask_kernel
from pockengine.backends.c.movement import (
    broadcast_kernel,
    concat_kernel,
    pad_kernel,
    reshape_kernel,
    reverse_kernel,
    slice_kernel,
    transpose_kernel,
)
from pockengine.backends.c.options import Options, Picker, cheapest
from pockengine.backends.c.pick import pick_kernel
from pockengine.backends.c.pool import pool_kernel
from pockengine.backends.c.randomness import OPS as RANDOM
from pockengine.backends.c.randomness import random_kernel
from pockengine.backends.c.reduction import KINDS as REDUCTIONS
from pockengine.backends.c.reduction import reduction_kernel
from pockengine.backends.c.row_norm import OPS as ROW_NORMS
from pockengine.backends.c.row_norm import row_norm_kernel
from pockengine.backends.c.scan import argmax_kernel, cumsum_kernel
from pockengine.backends.c.softmax import KINDS as SOFTMAX
from pockengine.backends.c.softmax import softmax_kernel
from pockengine.backends.c.update import update_kernel
from pockengine.compiler.compile import Target
from pockengine.compiler.ir import Node
from pockengine.compiler.ops import lookup
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.compiler.passes.fuse import FusionRules
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

Emitter = Callable[[Node, Device], Kernel]

CONVOLUTIONS = ("conv2d", "conv2d_dx", "conv2d_dw")

PLANNED = {"matmul": matmul_kernel, **dict.fromkeys(CONVOLUTIONS, conv_kernel)}
"""Ops whose emitters take options."""

EMITTERS: dict[str, Emitter] = {
    **PLANNED,
    "max_pool2d": pool_kernel,
    "max_pool2d_dx": pool_kernel,
    "avg_pool2d": pool_kernel,
    "avg_pool2d_dx": pool_kernel,
    "transpose": transpose_kernel,
    "reshape": reshape_kernel,
    "broadcast_to": broadcast_kernel,
    "concat": concat_kernel,
    "pad": pad_kernel,
    "slice": slice_kernel,
    "pick": pick_kernel,
    "reverse": reverse_kernel,
    "argmax": argmax_kernel,
    "cumsum": cumsum_kernel,
    "pack_mask": mask_kernel,
    "unpack_mask": mask_kernel,
    **dict.fromkeys(REDUCTIONS, reduction_kernel),
    **dict.fromkeys(SOFTMAX, softmax_kernel),
    **dict.fromkeys(ROW_NORMS, row_norm_kernel),
    **dict.fromkeys(GATHERS, gather_kernel),
    "take_update": take_update_kernel,
    **dict.fromkeys(RANDOM, random_kernel),
    **dict.fromkeys(FORMULAS, update_kernel),
}

FUSION = FusionRules(
    epilogue=frozenset({"matmul", "conv2d", "conv2d_dx"}),
    update=frozenset({"matmul", "conv2d_dw"}),
    prologue={
        "reduce_sum": (0,),
        "reduce_mean": (0,),
        "reduce_max": (0,),
        "reduce_min": (0,),
        "reduce_prod": (0,),
        "moments": (0,),
        "batch_norm_sums": (0, 1),
    },
)


class CBackend:
    """Emits kernels for one device, by `Options`. A node's kernel is made once.

    CompileError where `bf16` is asked of a device without such instructions.
    """

    def __init__(
        self,
        device: Device,
        *,
        winograd: bool = True,
        bf16: bool = False,
        pick: Picker = cheapest,
    ) -> None:
        if bf16 and not device.cpu.bf16:
            raise CompileError(
                f"{device.name} ({device.cpu.model}) has no bf16 products; compile for f32"
            )
        self.device = device
        self.options = Options(winograd, bf16, pick)
        self._kernels: dict[Node, Kernel] = {}

    def frugal(self) -> "CBackend":
        """The same backend without Winograd's method, whose kernels need the most scratch."""
        return CBackend(self.device, winograd=False, bf16=self.options.bf16, pick=self.options.pick)

    def supports(self, node: Node) -> bool:
        """Whether this backend has a kernel for the node."""
        try:
            self.kernel(node)
        except CompileError:
            return False
        return True

    def kernel(self, node: Node) -> Kernel:
        """The kernel of a node; CompileError names what the backend lacks."""
        if node not in self._kernels:
            self._kernels[node] = self._emitter(node)(node, self.device)
        return self._kernels[node]

    def scratch_bytes(self, node: Node) -> int:
        """Bytes of the arena that the node's kernel needs while it runs."""
        return self.kernel(node).scratch_bytes

    def target(self) -> Target:
        """What the compiler asks of a backend."""
        return Target(FUSION, self.scratch_bytes)

    def _emitter(self, node: Node) -> Emitter:
        op = anchor_op(node)
        if op is None:
            return elementwise_kernel
        if op not in EMITTERS:
            known = ", ".join(sorted(EMITTERS))
            raise CompileError(f"{node}: the C backend has no kernel for {op}; it has {known}")
        if op in PLANNED:
            return partial(PLANNED[op], options=self.options)
        return EMITTERS[op]


def anchor_op(node: Node) -> str | None:
    """The op that a kernel is built around; None for purely elementwise work."""
    nodes = node.attrs["body"].nodes if node.op == "fusion" else [node]
    return next((inner.op for inner in nodes if not lookup(inner.op).elementwise), None)
