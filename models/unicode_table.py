"""Character classes of the regular expressions of `tokenizers`, and NFC's tables.

The classes are queried from the package itself, so its version of Unicode decides.
"""

import unicodedata
from collections.abc import Iterator
from functools import cache

import numpy as np
from tokenizers import Regex, normalizers, pre_tokenizers

LETTER, NUMBER, SPACE, NUMERIC, ACCENT = 1, 2, 4, 8, 16
"""Classes of pe_tokenizer_table.h; NUMERIC is that of the pre-tokenizer Digits."""
BLOCK = 256
_LAST = 0x110000
_RANGES = (range(0xD800), range(0xE000, 0x40000), range(0xE0000, 0xE0200))
"""All other characters are surrogates, private or unassigned, and in no class."""


_DECOMPOSED = normalizers.NFD()
_FIRST_CLASS = "\u0334"


@cache
def classes() -> np.ndarray:
    """Return the classes of all characters, u8[0x110000]."""
    places = np.concatenate([np.arange(part.start, part.stop) for part in _RANGES])
    text = "".join(map(chr, places.tolist()))
    found = np.zeros(_LAST, np.uint8)
    patterns = {r"\p{L}+": LETTER, r"\p{N}+": NUMBER, r"\s+": SPACE, r"\p{M}+": ACCENT}
    for pattern, bit in patterns.items():
        matched = np.ones(len(text), bool)
        split = pre_tokenizers.Split(Regex(pattern), "removed")
        for _, (start, stop) in split.pre_tokenize_str(text):
            matched[start:stop] = False
        found[places[matched]] |= bit
    digits = pre_tokenizers.Digits(individual_digits=False).pre_tokenize_str(text)
    for _, (start, stop) in digits[1::2]:  # runs alternate, and U+0000 is not a digit
        found[places[start:stop]] |= NUMERIC
    return found


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
    found = np.array([unicodedata.combining(chr(c)) for c in range(_LAST)], np.uint8)
    for c in np.flatnonzero(found > 1).tolist():
        if _DECOMPOSED.normalize_str(chr(c) + _FIRST_CLASS).endswith(_FIRST_CLASS):
            found[c] = 0
    return found


@cache
def decompositions() -> tuple[tuple[int, int, int | None], ...]:
    """Return each character with a canonical decomposition, and its one or two parts."""
    found: list[tuple[int, int, int | None]] = []
    for c in range(_LAST):
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
