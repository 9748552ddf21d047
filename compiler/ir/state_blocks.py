"""8-bit optimizer states: codes of a dynamic map, with one scale (largest magnitude) per block.

A block is 256 consecutive elements of the flattened tensor; the last may be shorter. A number is
`map[code]` times the block's scale. The map is that of 8-bit optimizers (Dettmers et al., ICLR'22,
arXiv 2110.02861): 0, 1, and the middles of equal cells of [0.1, 1] in each of seven decades, with
twice as many cells in a larger decade. With a sign decade i from below has 2^i cells on either side
of 0, without one 2^(i + 1).
"""

from functools import cache

import numpy as np

from pockengine.compiler.ir.types import Shape

STATE_BLOCK = 256
"""Numbers per scale."""

DECADES = 7


@cache
def dynamic_map(signed: bool) -> np.ndarray:
    """Return the 256 numbers of the map in ascending order, f32."""
    above = [
        10.0 ** (decade + 1 - DECADES) * (0.1 + 0.9 * (np.arange(cells) + 0.5) / cells)
        for decade, cells in ((d, 2**d if signed else 2 ** (d + 1)) for d in range(DECADES))
    ]
    below = [-middles for middles in above] if signed else []
    table = np.sort(np.concatenate([*below, [0.0], *above, [1.0]])).astype(np.float32)
    table.flags.writeable = False
    return table


@cache
def borders(signed: bool) -> np.ndarray:
    """Return the midpoints between neighbors in the map; a number on a midpoint gets the lower
    code.
    """
    table = dynamic_map(signed)
    return np.asarray((table[:-1] + table[1:]) * np.float32(0.5))


def code_of(number: float, signed: bool) -> int:
    """Return the code of the map's number nearest to a number in [-1, 1]."""
    return int(np.searchsorted(borders(signed), np.float32(number)))


def scales_shape(shape: Shape) -> Shape:
    """Shape of the scales: one per block."""
    return (-(-int(np.prod(shape)) // STATE_BLOCK),)


def encode(numbers: np.ndarray, signed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return codes u8 of the same shape, and scales f32.

    Unsigned: a number above 0 gets a code above 0, however small it is within its block, because
    second moments are divisors.
    """
    blocks = _blocked(np.asarray(numbers, np.float32))
    scales = np.abs(blocks).max(axis=1)
    scaled = blocks / np.where(scales == 0, np.float32(1), scales)[:, None]
    codes = np.searchsorted(borders(signed), scaled)
    if not signed:
        codes = np.maximum(codes, scaled > 0)
    return codes.astype(np.uint8).reshape(-1)[: numbers.size].reshape(numbers.shape), scales


def decode(codes: np.ndarray, scales: np.ndarray, signed: bool) -> np.ndarray:
    """Return the decoded f32 numbers."""
    numbers = dynamic_map(signed)[_blocked(codes)] * scales[:, None]
    return np.ascontiguousarray(numbers.reshape(-1)[: codes.size].reshape(codes.shape))


def _blocked(array: np.ndarray) -> np.ndarray:
    """Split the flattened elements into rows of one block, zero-padded."""
    flat = array.reshape(-1)
    return np.pad(flat, (0, -flat.size % STATE_BLOCK)).reshape(-1, STATE_BLOCK)
