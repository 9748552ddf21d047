"""Check input numbers that are used as indices, before a step."""

from collections.abc import Iterable, Sequence

import numpy as np

from pockengine.compiler.index_ranges import IndexRange
from pockengine.errors import RuntimeFailure


def check_ranges(
    entry: str, ranges: Iterable[IndexRange], names: Sequence[str], inputs: Sequence[np.ndarray]
) -> None:
    """Raise RuntimeFailure for a number that an entry's reader would misinterpret as an index."""
    arrays = dict(zip(names, inputs, strict=True))
    for known in ranges:
        array = arrays[known.input]
        rows = known.start + known.row_stride * np.arange(known.rows)
        places = (rows[:, None] + known.stride * np.arange(known.count)).reshape(-1)
        numbers = array.reshape(-1)[places]
        wrong = ((numbers < known.low) | (numbers > known.high)) & (numbers != known.also)
        if wrong.any():
            place = int(places[np.argmax(wrong)])
            where = [int(index) for index in np.unravel_index(place, array.shape)]
            also = "" if known.low <= known.also <= known.high else f" or {known.also}"
            raise RuntimeFailure(
                f"input {known.input} holds {array.reshape(-1)[place]} at {where}; entry {entry} "
                f"takes {known.low} to {known.high}{also} there, and nothing was computed"
            )
