"""SentencePiece's charsmaps: texts that replace characters and clusters, in a double-array trie.

A charsmap is the trie's size in bytes, its units of 32 bits, and the texts, each with a zero byte
at its end. A unit has a label in bits 0 to 7, whether its node has a value in bit 8, and the offset
of its children in bits 10 to 30, which bit 9 scales by 256. A value is in a unit of its own, with
bit 31 set.
"""

import struct
from collections.abc import Iterator, Mapping

import numpy as np

from pockengine.errors import ImportModelError

LONGEST = 5
"""Bytes of the longest key that `tokenizers` looks up."""
_BLOCK = 256
_LEAF = 1 << 31


def texts_of(charsmap: bytes) -> dict[bytes, bytes]:
    """Return the text of each key; keys that begin with another key are never found.

    ImportModelError if the charsmap is damaged.
    """
    size = int.from_bytes(charsmap[:4], "little")
    texts = charsmap[4 + size :]
    if len(charsmap) < 8 or size % 4 or size < 4 or size + 4 > len(charsmap):
        raise _damaged("it is shorter than its trie")
    units = np.frombuffer(charsmap, "<u4", size // 4, 4)
    found = {}
    for key, value in _keys(units, b"", _base(units, 0, 0)):
        if value > len(texts):
            raise _damaged(f"the text of {key!r} lies outside of it")
        found[key] = texts[value:].split(b"\0", 1)[0]
    try:
        for text in found.values():
            text.decode()
    except UnicodeDecodeError as error:
        raise _damaged("a text of it is not UTF-8") from error
    return found


def _damaged(why: str) -> ImportModelError:
    return ImportModelError(
        f"the tokenizer's precompiled_charsmap is damaged: {why}; copy it again"
    )


def _base(units: np.ndarray, at: int, base: int) -> int:
    unit = int(units[at])
    return base ^ ((unit >> 10) << ((unit & 512) >> 6))


def _keys(units: np.ndarray, key: bytes, base: int) -> Iterator[tuple[bytes, int]]:
    """Yield the shortest keys below a node, and their values."""
    places = base ^ np.arange(1, _BLOCK)
    places = places[places < len(units)]
    labels = units[places] & (_LEAF | 0xFF)
    for at in places[labels == (places ^ base)].tolist():
        longer = key + bytes([at ^ base])
        child = _base(units, at, at)
        if units[at] >> 8 & 1:
            if child >= len(units):
                raise _damaged(f"the value of {longer!r} lies outside of it")
            yield longer, int(units[child]) & (_LEAF - 1)
        elif len(longer) < LONGEST:
            yield from _keys(units, longer, child)


def charsmap_of(texts: Mapping[bytes, bytes]) -> bytes:
    """Return a charsmap; each node's children are in a block of their own."""
    prefixes = sorted({key[:length] for key in texts for length in range(len(key) + 1)})
    block = {prefix: place for place, prefix in enumerate(prefixes, 1)}
    units = np.zeros(_BLOCK * (len(prefixes) + 1), "<u4")
    places = {b"": 0} | {p: _BLOCK * block[p[:-1]] + p[-1] for p in prefixes if p}
    contents, starts = b"", dict[bytes, int]()
    for prefix, at in places.items():
        offset = at ^ _BLOCK * block[prefix]
        units[at] = (offset << 10) | (prefix in texts) << 8 | (prefix[-1] if prefix else 0)
        if prefix in texts:
            start = starts.setdefault(texts[prefix], len(contents))
            contents += b"" if start < len(contents) else texts[prefix] + b"\0"
            units[_BLOCK * block[prefix]] = _LEAF | start
    return struct.pack("<I", 4 * len(units)) + units.tobytes() + contents
