"""Kernels of `matmul_blocks`: few rows times a weight in blocks, which is read as it is stored.

The templates are gemm_blocks.inc.h and gemm_blocks_dot.inc.h of runtime/kernels.
"""

from dataclasses import dataclass

from pockengine.backends.c.elementwise.epilogue import Anchored, open_fusion, split_fusion
from pockengine.backends.c.family import KernelFamily
from pockengine.backends.c.modelled import plain_cycles
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.products.gemm import template
from pockengine.backends.c.tile import machine_of
from pockengine.backends.native.kernel import Kernel, align, define_kernel
from pockengine.backends.native.text import Text
from pockengine.compiler.ir import Node
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

MOST_ROWS = 8
"""Maximum rows of A: with more, decoding a panel once pays."""

PASS, NARROW_FACTORS = 8, 16
"""Rows of bytes that are read at a time, each a stream to the prefetcher; and the vectors of
factors that fit into the registers with 4 lanes.
"""

MOST_DOTS = 4
"""Maximum sums along the inner dimension at a time, over the rows of A."""


@dataclass(frozen=True)
class BlocksSpec:
    """A product with a weight in blocks: by its rows of bytes, or if transposed by dot products."""

    rows: int
    columns: int
    depth: int
    bits: int
    transposed: bool
    lanes: int

    @property
    def form(self) -> str:
        """The method in the kernel's name."""
        return f"blocks{self.bits}" + ("_dot" if self.transposed else "")

    @property
    def steps(self) -> int:
        """Rows of bytes in a pass: a power of two, which divides a block's."""
        if self.lanes > 4:
            return PASS
        most = min(PASS, NARROW_FACTORS * self.bits // 8 // self.rows)
        return 1 << max(1, most).bit_length() - 1

    @property
    def dots(self) -> int:
        """Rows of a transposed weight that are read at a time."""
        return max(1, MOST_DOTS // (1 << (self.rows - 1).bit_length()))

    @property
    def pitch(self) -> int:
        """Floats of a row of sums."""
        return align(self.columns, 16)

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel: the sums of each row, and scales."""
        return 0 if self.transposed else 4 * (self.rows + 1) * self.pitch


def most_rows(device: Device) -> int:
    """Return the largest number of rows that these kernels multiply on a device; 0 for none."""
    return MOST_ROWS if machine_of(device).lanes <= 16 else 0


def _choose(node: Node, device: Device, options: KernelOptions) -> Choice:
    anchor = split_fusion(node).anchor
    depth, columns = anchor.operands[0].shape[-1], anchor.result.shape[-1]
    spec = BlocksSpec(
        rows=anchor.result.type.size // columns,
        columns=columns,
        depth=depth,
        bits=anchor.attrs["bits"],
        transposed=anchor.attrs["transpose_b"],
        lanes=machine_of(device).lanes,
    )
    return Choice(spec.form, plain_cycles(node, device), spec.scratch_bytes, spec)


def _emit(node: Node, choice: Choice, device: Device) -> Kernel:
    spec, opened = choice.spec, open_fusion(node, device)
    assert isinstance(spec, BlocksSpec)
    a, codes, scales = opened.names
    operands = f"{a}, (const uint8_t *){codes}, {scales}"
    if not spec.transposed:
        operands += ", scratch"
    return define_kernel(
        name=f"pe_f32_{opened.title}_{spec.rows}x{spec.columns}x{spec.depth}_{spec.form}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, f"{opened.symbol}_run(w, &io, {operands});", *opened.end],
        prelude=_prelude(opened, spec),
        scratch_bytes=spec.scratch_bytes,
    )


def _prelude(opened: Anchored, spec: BlocksSpec) -> Text:
    macros: dict[str, object] = {
        "PE_FN(name)": f"PE_JOIN({opened.symbol}_, name)",
        "PE_VL": spec.lanes,
        "PE_BITS": spec.bits,
        "PE_M": spec.rows,
        "PE_N": spec.columns,
        "PE_K": spec.depth,
        "PE_A_ROW": spec.depth,
    }
    sizes = f"{spec.rows}x{spec.depth} by {spec.depth}x{spec.columns}"
    comment = f"/* product of {sizes} in blocks of {spec.bits} bits */\n"
    if spec.transposed:
        macros["PE_NV"] = spec.dots
        text = template(macros, opened.store, "gemm_blocks_dot")
    else:
        macros |= {"PE_STEPS": spec.steps, "PE_PITCH": spec.pitch}
        text = template(macros, opened.store, "gemm_blocks")
    return comment + '#include "pe_blocks.h"\n' + text


MATMUL_BLOCKS = KernelFamily(_choose, _emit)
