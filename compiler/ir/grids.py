"""Contents that are integer codes times scales, as quantized model files hold them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pockengine.compiler.ir.blocks import BLOCK, Blocks
from pockengine.compiler.ir.contents import Contents
from pockengine.compiler.ir.scalars import DType
from pockengine.compiler.ir.types import TensorType


@dataclass(frozen=True, eq=False)
class Grid(Contents):
    """f32 numbers `code x scale`; equally many neighbors along `axis` share a scale.

    `load` returns integer codes in the tensor's shape, and f32 scales. `bits` is the size of blocks
    that hold the same numbers, 4 or 8; None if neither does. `exact` is a float type of 16 bits
    that represents the numbers, if one does for any codes and scales.
    """

    type: TensorType
    axis: int
    load: Callable[[], tuple[np.ndarray, np.ndarray]]
    bits: int | None
    exact: DType | None = None

    def read(self) -> np.ndarray:
        """Return the decoded numbers."""
        codes, scales = self.load()
        each = codes.shape[self.axis] // scales.shape[self.axis]
        numbers: np.ndarray = codes.astype(np.float32) * np.repeat(scales, each, self.axis)
        return numbers

    def transposed(self, order: tuple[int, ...]) -> "Grid":
        """Return the same numbers with permuted axes."""

        def load() -> tuple[np.ndarray, np.ndarray]:
            codes, scales = self.load()
            return codes.transpose(order), scales.transpose(order)

        axis = order.index(self.axis)
        return replace(self, type=self.type.transposed(order), axis=axis, load=load)

    def reordered(self, change: Callable[[np.ndarray], np.ndarray]) -> "Grid":
        """Return the numbers in another order, along the axis of scales that of whole groups."""

        def load() -> tuple[np.ndarray, np.ndarray]:
            codes, scales = self.load()
            return change(codes), change(scales)

        return replace(self, load=load)

    def in_blocks(self, blocks: Blocks) -> tuple[np.ndarray, np.ndarray] | None:
        """Return codes and scales of blocks with exactly these numbers, or None."""
        codes, scales = self.load()
        each = codes.shape[self.axis] // scales.shape[self.axis]
        low, high = -(1 << blocks.bits - 1), (1 << blocks.bits - 1) - 1
        if blocks.axis != self.axis or each % BLOCK or codes.min() < low or codes.max() > high:
            return None
        with np.errstate(over="ignore"):
            halves = scales.astype(np.float16)
        if not np.array_equal(halves, scales):
            return None
        return blocks.packed(codes), np.repeat(halves, each // BLOCK, self.axis)


def on_one_grid(
    grids: Sequence[Grid],
    type_: TensorType,
    axis: int,
    join: Callable[[Sequence[np.ndarray]], np.ndarray],
) -> Grid:
    """Join contents along other axes than that of their scales, which are as many as the most."""
    own = grids[0].axis

    def load() -> tuple[np.ndarray, np.ndarray]:
        pairs = [grid.load() for grid in grids]
        most = max(scales.shape[own] for _, scales in pairs)
        finest = [np.repeat(scales, most // scales.shape[own], own) for _, scales in pairs]
        return join([codes for codes, _ in pairs]), join(finest)

    known = [grid.bits for grid in grids if grid.bits is not None]
    bits = max(known) if len(known) == len(grids) else None
    return Grid(type_, axis, load, bits, exact=grids[0].exact)
