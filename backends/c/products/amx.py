"""Products of operands rounded to bf16 by tiles of them: Intel's AMX.

Numbers only; gemm.py writes the C that they mean. An instruction multiplies 16 x 32 by 32 x 16
numbers in 16 cycles, sixteen times as many as two vectors of f32 do, so that packing the operands
into tiles, done by vectors, takes about as long as multiplying them.
"""

from dataclasses import dataclass
from typing import ClassVar

from pockengine.backends.c.products.product_shape import MatmulShape
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

SIDE = 32
"""Rows and columns of a block: two tiles of 16 of both."""

STEPS = 32
"""Steps of a tile."""

WORDS = 256
"""Words of a tile."""

BLOCK_CYCLES = 130.0
"""Cycles of a block's four products of tiles that come from the second-level cache: 41 to 55 ns on
a Granite Rapids, whose instructions alone take 64 cycles."""

PACK_CYCLES = 0.8
"""Cycles to round an element and put it into its tile, most of which wait for memory."""


@dataclass(frozen=True)
class AmxSpec:
    """A product by tiles; threads share the rows, or the columns; a block has so many columns.

    Of a batch each of `packers` threads has operands of its own.
    """

    product: MatmulShape
    by_rows: bool
    block_columns: int
    packers: int

    kind: ClassVar = "bf16"
    form: ClassVar = "amx"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns and steps."""
        return self.product.m, self.product.n, self.product.k

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel: operands in tiles."""
        m, n, k = (-(-size // SIDE) for size in self.sizes)
        return 4 * 2 * (m + n) * k * WORDS * self.packers


def choose_amx(product: MatmulShape, device: Device) -> Choice | None:
    """Choose tiles where the device has them, and the product is large enough to fill them."""
    smallest = min(product.m, product.n, product.k)
    cores, batch = device.cpu.cores, product.batch
    if not device.cpu.amx or smallest < SIDE or 1 < batch < cores:
        return None
    blocks = [-(-size // SIDE) for size in (product.m, product.n)]
    by_rows = _idle(blocks[0], cores) <= _idle(blocks[1], cores)
    fitting = device.cpu.l2_bytes // 2 // (2 * product.k) // SIDE
    spec = AmxSpec(product, by_rows, max(1, fitting) * SIDE, cores if batch > 1 else 1)
    shared, other = blocks if by_rows else reversed(blocks)
    elements = (product.m + product.n) * product.k
    if batch == 1:
        results, packed = -(-shared // cores) * other, elements / cores
    else:
        results, packed = (-(-batch // cores) * each for each in (shared * other, elements))
    cycles = results * -(-product.k // STEPS) * BLOCK_CYCLES + packed * PACK_CYCLES
    return Choice("AMX", cycles, spec.scratch_bytes, spec)


def _idle(blocks: int, cores: int) -> float:
    """Return the part of the threads' time that they wait for the one with the most blocks."""
    return 1 - blocks / (-(-blocks // cores) * cores)
