"""Sets of characters in the regular expressions of `tokenizers`, and NFC's tables.

The sets are queried from the package itself, so its version of Unicode decides.
"""

import unicodedata
from collections.abc import Iterator
from functools import cache

import numpy as np
from tokenizers import Regex, normalizers, pre_tokenizers

from pockengine.errors import ImportModelError

NUMERIC = "Digits"
"""The set of the pre-tokenizer Digits."""
BLOCK = 256
CHARACTERS = 0x110000
_RANGES = (range(0xD800), range(0xE000, 0x40000), range(0xE0000, 0xE0200))
_ALIKE = (range(0x40000, 0xE0000), range(0xE0200, 0xF0000), range(0xF0000, CHARACTERS))
"""Characters that are all unassigned, or all private: their first one stands for them."""


_DECOMPOSED = normalizers.NFD()
_FIRST_CLASS = "\u0334"


@cache
def _places() -> np.ndarray:
    """Return the characters that are queried."""
    alone = [np.arange(part.start, part.stop) for part in _RANGES]
    return np.concatenate([*alone, [part.start for part in _ALIKE]])


@cache
def members(chars: str) -> np.ndarray:
    """Return whether each character is in a set, bool[0x110000].

    The set is one character, a regular expression for one, or NUMERIC.
    """
    found = np.zeros(CHARACTERS, bool)
    if len(chars) == 1:
        found[ord(chars)] = True
        return found
    matched = np.ones(len(_places()), bool)
    text = "".join(map(chr, _places().tolist()))
    if chars == NUMERIC:
        runs = pre_tokenizers.Digits(individual_digits=False).pre_tokenize_str(text)
        others = runs[::2]  # they alternate, and U+0000 is not a digit
    else:
        others = pre_tokenizers.Split(Regex(f"{chars}+"), "removed").pre_tokenize_str(text)
    for _, (start, stop) in others:
        matched[start:stop] = False
    found[_places()] = matched
    for part in _ALIKE:
        found[part.start : part.stop] = found[part.start]
    return found


def classes(masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each character's class, u8[0x110000], and the sets of each class, u32[256].

    Characters of a class are in the same sets. ImportModelError if there are more classes.
    """
    sets, places = np.unique(masks, return_inverse=True)
    if len(sets) > 256:
        raise ImportModelError(
            f"the tokenizer's patterns distinguish {len(sets)} classes of characters; the C "
            "runtime has at most 256"
        )
    return places.astype(np.uint8), np.resize(sets, 256)


def blocks(*tables: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the number of each block of BLOCK characters, and the distinct blocks by table.

    Tables are of u8: the distinct blocks are in the order of their bytes.
    """
    rows = np.stack([table.reshape(-1, BLOCK) for table in tables], axis=1)
    texts = [row.tobytes() for row in rows]  # np.unique takes 100 times as long for rows
    distinct = sorted(set(texts))
    number = {text: place for place, text in enumerate(distinct)}
    parts = np.frombuffer(b"".join(distinct), np.uint8).reshape(-1, len(tables), BLOCK)
    flat = [np.ascontiguousarray(parts[:, place]).reshape(-1) for place in range(len(tables))]
    return np.array([number[text] for text in texts], np.uint16), flat


@cache
def combining() -> np.ndarray:
    """Return the canonical combining classes, u8[0x110000].

    The package's Unicode version is older than Python's: characters that it does not reorder after
    one of class 1 get 0.
    """
    found = np.array([unicodedata.combining(chr(c)) for c in range(CHARACTERS)], np.uint8)
    for c in np.flatnonzero(found > 1).tolist():
        if _DECOMPOSED.normalize_str(chr(c) + _FIRST_CLASS).endswith(_FIRST_CLASS):
            found[c] = 0
    return found


@cache
def decompositions() -> tuple[tuple[int, int, int | None], ...]:
    """Return each character with a canonical decomposition, and its one or two parts."""
    found: list[tuple[int, int, int | None]] = []
    for c in range(CHARACTERS):
        parts = unicodedata.decomposition(chr(c)).split()
        known = parts and _DECOMPOSED.normalize_str(chr(c)) != chr(c)
        if known and not parts[0].startswith("<"):
            first, *second = (int(part, 16) for part in parts)
            found.append((c, first, second[0] if second else None))
    return tuple(found)


def compositions() -> Iterator[tuple[int, int, int]]:
    """Yield the pairs that NFC composes, and their result."""
    for c, first, second in decompositions():
        if second is not None and unicodedata.normalize("NFC", chr(first) + chr(second)) == chr(c):
            yield first, second, c
