"""Tiled products of operands rounded to bf16, for Intel's AMX.

Parameters only; gemm.py emits the C. An instruction multiplies 16 x 32 by 32 x 16 numbers in 16
cycles, sixteen times as many as two f32 vectors, so packing the operands into tiles takes about as
long as multiplying them.
"""

from dataclasses import dataclass
from typing import ClassVar

from pockengine.backends.c.products.product_shape import MatmulShape
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

SIDE = 32
"""Rows and columns of a block: two tiles of 16 in each dimension."""

STEPS = 32
"""Steps of a tile."""

WORDS = 256
"""Words of a tile."""

BLOCK_CYCLES = 130.0
"""Cycles of a block's four tile products from the second-level cache: 41 to 55 ns on a Granite
Rapids, where the instructions alone take 64 cycles.
"""

PACK_CYCLES = 0.8
"""Cycles to round an element and store it in its tile, mostly waiting for memory."""


@dataclass(frozen=True)
class AmxSpec:
    """A tiled product; threads split the rows or the columns; `columns` per block.

    In a batch each of `packers` threads packs its own operands.
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
    """Choose tiles if the device has them and the product is large enough to fill them."""
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
    """Return the fraction of the threads' time spent waiting for the one with the most blocks."""
    return 1 - blocks / (-(-blocks // cores) * cores)
