"""Plans of products of few rows with a weight in blocks, which is read as it is stored."""

from dataclasses import dataclass
from typing import ClassVar

from pockengine.backends.c.products.product_shape import MatmulShape
from pockengine.backends.native.kernel import align

PASS, NARROW_FACTORS = 8, 16
"""Rows of bytes that are read at a time, each a stream to the prefetcher; and the vectors of
factors that fit into the registers with 4 lanes.
"""

MOST_DOTS = 4
"""Maximum sums along the inner dimension at a time, over the rows of A."""


@dataclass(frozen=True)
class BlocksSpec:
    """A product with a B in blocks: by its rows of bytes, or if transposed by dot products."""

    product: MatmulShape
    bits: int
    lanes: int

    kind: ClassVar = "f32"

    @property
    def form(self) -> str:
        """The method in the kernel's name."""
        return f"blocks{self.bits}" + ("_dot" if self.product.b_transposed else "")

    @property
    def steps(self) -> int:
        """Rows of bytes in a pass: a power of two, which divides a block's."""
        if self.lanes > 4:
            return PASS
        most = min(PASS, NARROW_FACTORS * self.bits // 8 // self.product.m)
        return 1 << max(1, most).bit_length() - 1

    @property
    def dots(self) -> int:
        """Rows of a transposed B that are read at a time."""
        return max(1, MOST_DOTS // (1 << (self.product.m - 1).bit_length()))

    @property
    def pitch(self) -> int:
        """Floats of a row of sums."""
        return align(self.product.n, 16)

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel: the sums of each row, and scales."""
        return 0 if self.product.b_transposed else 4 * (self.product.m + 1) * self.pitch
