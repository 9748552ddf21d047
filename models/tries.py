"""Tries of byte strings as arrays that the C runtime reads in place (pe_tokenizer_table.h)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

NONE = 0xFFFFFFFF


@dataclass(frozen=True)
class Forest:
    """Nodes of several tries by depth, then by their bytes; the roots are first.

    `children` is the first child of each node, and the number of nodes; `labels` is the byte that
    leads to it, of a root its number; `values` is its key's value, or NONE.
    """

    children: np.ndarray
    labels: np.ndarray
    values: np.ndarray


def forest(tries: Sequence[Mapping[bytes, int]]) -> Forest:
    """Return the nodes of tries; each has a key, and the empty one is left out."""
    entries = {
        bytes([root]) + key: value
        for root, trie in enumerate(tries)
        for key, value in trie.items()
        if key
    }
    keys = sorted(entries)
    if not keys:
        return Forest(np.zeros(0, np.uint32), np.zeros(0, np.uint8), np.zeros(0, np.uint32))
    lengths = np.array([len(key) for key in keys])
    shared = np.array([0, *map(_shared, keys, keys[1:])])
    starts = np.cumsum(lengths) - lengths
    letters = np.frombuffer(b"".join(keys), np.uint8)
    new = lengths - shared  # the nodes that a key adds to those of the keys before it
    owners = np.repeat(np.arange(len(keys)), new)
    depths = np.arange(new.sum()) - np.repeat(np.cumsum(new) - new - shared, new)
    order = np.lexsort((owners, depths))
    owners, depths = owners[order], depths[order]
    values = np.full(len(order), NONE, np.uint32)
    ends = depths == lengths[owners] - 1
    values[ends] = np.array([entries[key] for key in keys], np.uint32)[owners[ends]]
    children = np.full(len(order) + 1, len(order), np.uint32)
    levels = np.searchsorted(depths, np.arange(depths.max() + 2))
    for begin, end, after in zip(levels, levels[1:], [*levels[2:], len(order)], strict=False):
        children[begin:end] = end + np.searchsorted(owners[end:after], owners[begin:end])
    return Forest(children, letters[starts[owners] + depths], values)


def _shared(a: bytes, b: bytes) -> int:
    """Return the length of the longest common prefix."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
