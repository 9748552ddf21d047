"""Cut a forward pass into blocks, of which only values that cross a cut are saved.

A block's other activations are recomputed from the values at the cut before it (Chen et al., arXiv
1604.06174): with `w` bytes per cut and `t` saved bytes in all, sqrt(t / w) blocks are optimal.
"""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.graph import Node, Value


@dataclass(frozen=True)
class Cuts:
    """Positions of forward nodes that end a block, in order, and the values that cross any cut."""

    places: tuple[int, ...]
    crossing: frozenset[Value]


def find_cuts(forward: Sequence[Node], read_back: Container[Value], finer: float = 1.0) -> Cuts:
    """Cut where few bytes cross, into blocks with similar saved bytes; `read_back` are saved
    activations, and `finer` multiplies the number of blocks.

    A chain can be cut everywhere; a graph without narrow points has one block and no cut.
    """
    made = {result: at for at, node in enumerate(forward) for result in node.results}
    last: dict[Value, int] = dict(made)
    for at, node in enumerate(forward):
        last.update((operand, at) for operand in node.operands if operand in made)
    across = np.zeros(len(forward) + 1)
    for value, at in made.items():
        across[at] += value.type.nbytes
        across[last[value]] -= value.type.nbytes
    across = np.cumsum(across)[:-1]
    saved = np.cumsum([_saved_bytes(node, read_back) for node in forward])
    places = _places(across, saved, finer)
    crossing = {value for value, at in made.items() for cut in places if at <= cut < last[value]}
    return Cuts(places, frozenset(crossing))


def _saved_bytes(node: Node, read_back: Container[Value]) -> int:
    return sum(result.type.nbytes for result in node.results if result in read_back)


def _places(across: np.ndarray, saved: np.ndarray, finer: float) -> tuple[int, ...]:
    """Return, in each equal part of the saved bytes, the position with the fewest crossing
    bytes.
    """
    total = float(saved[-1])
    middle = across[(saved > total / 4) & (saved < 3 * total / 4)]
    least = float(middle.min()) if middle.size else 0.0
    blocks = round(finer * math.sqrt(total / least)) if least else 0
    places = []
    for block in range(1, blocks):
        near = np.flatnonzero(np.abs(saved / total * blocks - block) <= 0.5)
        if near.size:
            # The last of equal ones: then no view or constant lies between a block and its cut.
            places.append(int(near[::-1][np.argmin(across[near[::-1]])]))
    return tuple(sorted(set(places)))
