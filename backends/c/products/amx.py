"""Tiled products of operands rounded to bf16, for Intel's AMX.

Parameters only; gemm.py emits the C. An instruction multiplies 16 x 32 by 32 x 16 numbers in 16
cycles, sixteen times as many as two f32 vectors, so packing the operands into tiles may take as
long as multiplying them. A B that is stored in fewer bits is decoded while it is packed.
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

BLOCK_CYCLES = 100.0
"""Cycles of a block's four tile products: 64 of the instructions alone, 88 from the second-level
cache, 125 if the shared operand exceeds it, on an Emerald Rapids.
"""

PACK_CYCLES = 0.8
"""Cycles to round an element and store it in its tile, mostly waiting for memory."""

FEWEST_LINES = 256
"""Lines of a block that hide the time to read the shared operand, which may exceed the cache: 43 ns
per block of results with 256 lines, 52 with 64, where the instructions alone take 23.
"""


@dataclass(frozen=True)
class AmxSpec:
    """A tiled product: each thread packs blocks of `lines` lines and `depth` steps of its own.

    They are rows of A if `own_rows`, else columns of B. `threads` have scratch.
    """

    product: MatmulShape
    own_rows: bool
    lines: int
    depth: int
    threads: int

    kind: ClassVar = "bf16"
    form: ClassVar = "amx"

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel: shared lines, and each thread's block and its sums."""
        p = self.product
        shared = 2 * _pairs(p.n if self.own_rows else p.m)
        tiles = self.lines // 16 * (self.depth // STEPS)
        sums = shared * (self.lines // SIDE) * 2 if p.k > self.depth else 0
        shared *= -(-p.k // STEPS)
        apart = p.batch > 1
        own = tiles + sums + (shared if apart else 0)
        return 4 * WORDS * (self.threads * own + (0 if apart else shared))


def choose_amx(product: MatmulShape, device: Device) -> Choice | None:
    """Choose tiles if the device has them and the product is large enough to fill them."""
    smallest = min(product.m, product.n, product.k)
    cores, batch = device.cpu.cores, product.batch
    if not device.cpu.amx or smallest < SIDE or 1 < batch < cores:
        return None
    if product.stored and batch > 1:
        return None
    own_rows = product.m > product.n
    shared, own = sorted((_pairs(product.m), _pairs(product.n)))
    fitting = device.cpu.l2_bytes // 2 // 2  # numbers of a block that stays in the cache
    longest = max(STEPS, fitting // FEWEST_LINES)
    depth = STEPS * _pairs(-(-product.k // -(-product.k // longest)))
    mine = own if batch > 1 else -(-own // cores)
    lines = SIDE * min(max(1, fitting // depth // SIDE), mine)
    spec = AmxSpec(product, own_rows, lines, depth=depth, threads=cores)
    elements = (product.m + product.n) * product.k
    if batch == 1:
        results, packed = mine * shared, elements / cores
    else:
        results, packed = (-(-batch // cores) * each for each in (shared * own, elements))
    cycles = results * -(-product.k // STEPS) * BLOCK_CYCLES + packed * PACK_CYCLES
    return Choice("AMX", cycles, spec.scratch_bytes, spec)


def _pairs(size: int) -> int:
    """Pairs of 16 lines, or of 16 steps."""
    return -(-size // SIDE)
