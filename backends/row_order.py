"""The order of data rows in training, identical to the runner's (pe_row_order.h).

    order = RowOrder(rows=60000, seed=7, shuffled=True)
    order.rows_at(epoch=2, first=32, count=16) # 16 numbers of rows

A shuffled epoch is a keyed permutation of the rows: a Feistel network over the smallest sufficient
even number of bits, with cycle walking. It needs no memory and can start anywhere, so a resumed
training gets the same rows as an uninterrupted one.
"""

from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ops.random import mix, stream_key
from pockengine.errors import RuntimeFailure

ROUNDS = 6
MOST_ROWS = 1 << 62


@dataclass(frozen=True)
class RowOrder:
    """The order of `rows` rows in each epoch: 0 to rows - 1, or shuffled by the seed and epoch."""

    rows: int
    seed: int = 0
    shuffled: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MOST_ROWS:
            raise RuntimeFailure(f"data need 1 to 2^62 rows, not {self.rows}")

    def rows_at(self, epoch: int, first: int, count: int) -> np.ndarray:
        """Return the rows at positions first, first + 1, ... of an epoch, shape (count,) i64.

        RuntimeFailure unless all positions are below `rows`.
        """
        if first < 0 or count < 0 or first + count > self.rows:
            raise RuntimeFailure(
                f"an epoch of {self.rows} rows has no places {first} to {first + count - 1}"
            )
        places = np.arange(first, first + count, dtype=np.int64)
        return self._shuffle(places, epoch) if self.shuffled else places

    def _shuffle(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """Permute each position, repeatedly until the result is a row."""
        half = _half_bits(self.rows)
        key = int(stream_key(self.seed, epoch))
        keys = [stream_key(key, number) for number in range(ROUNDS)]
        result = _permute(places, half, keys)
        outside = result >= self.rows
        while outside.any():
            result[outside] = _permute(result[outside], half, keys)
            outside = result >= self.rows
        return result


def _half_bits(rows: int) -> int:
    """Return half of the smallest even number of bits for all rows; at least 1."""
    return max(1, ((rows - 1).bit_length() + 1) // 2)


def _permute(numbers: np.ndarray, half: int, keys: list[np.ndarray]) -> np.ndarray:
    """Return a permutation of the numbers of 2 * half bits, i64."""
    mask = np.uint32((1 << half) - 1)
    left, right = (numbers >> half).astype(np.uint32), numbers.astype(np.uint32) & mask
    with np.errstate(over="ignore"):
        for key in keys:
            left, right = right, left ^ (mix(mix(right) + key) & mask)
    return left.astype(np.int64) << half | right
