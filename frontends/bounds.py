"""Bounds on the results of operators on constant arrays, so that imports use bounded memory.

Shape arithmetic left by tracing is evaluated during the import. A frontend has a table of operators
that it evaluates, each with its bound.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from pockengine.frontends.emit.nn import Unsupported

MAX_ELEMENTS = 2**24
"""Maximum elements of inputs, and of outputs: enough for the mask of a sequence of 4096."""

Arrays = Sequence[np.ndarray]
Bound = Callable[[Arrays], int]


def check_bound(bound: Bound, arrays: Arrays) -> None:
    """Raise Unsupported for a result, or inputs, with too many elements."""
    elements = max(same_size(arrays), bound(arrays))
    if elements > MAX_ELEMENTS:
        raise Unsupported(f"a constant of {elements} elements; make it an input of the model")


def same_size(arrays: Arrays) -> int:
    """Bound operators that return at most as many elements as they take."""
    return sum(array.size for array in arrays)


def broadcast(arrays: Arrays) -> int:
    """Bound operators that broadcast their inputs."""
    return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))


def gathered(arrays: Arrays) -> int:
    """Bound operators that may read each element of one for each of the other."""
    return math.prod(max(array.size, 1) for array in arrays[:2])


def filled(arrays: Arrays) -> int:
    """Bound operators that fill a given shape."""
    return math.prod(_numbers(arrays[0]))


def expanded(arrays: Arrays) -> int:
    """Bound operators that repeat their first input up to a shape."""
    return math.prod(np.broadcast_shapes(arrays[0].shape, tuple(_numbers(arrays[1]))))


def tiled(arrays: Arrays) -> int:
    """Bound operators that repeat their first input by counts."""
    return arrays[0].size * math.prod(_numbers(arrays[1]))


def ranged(arrays: Arrays) -> int:
    """Bound operators that count from a start to a limit by a step."""
    start, limit, step = (float(array.item()) for array in arrays)
    return math.ceil((limit - start) / step)


def _numbers(array: np.ndarray) -> list[int]:
    return [int(number) for number in array.ravel()]
