"""Properties of characters that decide grapheme clusters, as sets of the C runtime.

`tokenizers` maps clusters of at most 5 bytes by a charsmap. The sets are queried from the package
by charsmaps whose keys are mapped to themselves: a key that begins a short cluster replaces all of
it, so a mark behind it disappears if the cluster begins there.
"""

from functools import cache

import numpy as np
from tokenizers import normalizers

from pockengine.models.charsmaps import charsmap_of

CHARACTERS = 0x110000
_MARK, _MARKS, _JOINER, _LINKER = "\u0301", "\u0301\u0302", "\u200d", "\u094d"
_PICTURE, _CONSONANT = "\u00a9", "\u0915"
_VOWEL, _TRAIL, _SYLLABLE = "\u1161", "\u11a8", "\uac00"
_KEYS = ("a", _MARK, _PICTURE, _CONSONANT, _VOWEL, _TRAIL, _SYLLABLE)
_QUERIED = (range(0xD800), range(0xE000, 0x20000), range(0xE0000, 0xE1000))
"""Characters that are queried; others are ideographs, unassigned or private, without a property."""
_SYLLABLES = slice(0xAC00, 0xD7A4)
_LINE_ENDS = (0x0A, 0x0D)


@cache
def _queried() -> np.ndarray:
    places = np.concatenate([np.arange(part.start, part.stop) for part in _QUERIED])
    return places[~np.isin(places, _LINE_ENDS)]


@cache
def _normalizer() -> normalizers.Normalizer:
    keys = [key.encode() for key in _KEYS]
    return normalizers.Precompiled(charsmap_of(dict(zip(keys, keys, strict=True))))


def _unchanged(before: str, behind: str) -> np.ndarray:
    """Return whether each character between two texts leaves all of them as they are."""
    texts = [f"{before}{chr(c)}{behind}" for c in _queried().tolist()]
    results = _normalizer().normalize_str("\n".join(texts)).split("\n")
    found = np.zeros(CHARACTERS, bool)
    found[_queried()] = [text == result for text, result in zip(texts, results, strict=True)]
    return found


@cache
def cluster_sets() -> tuple[np.ndarray, ...]:
    """Return which characters have each property, bool[0x110000], from PE_TK_CONTROL on."""
    queried = np.zeros(CHARACTERS, bool)
    queried[_queried()] = True
    control = queried & ~_unchanged("", _MARKS)
    control[ord("a")] = False
    control[list(_LINE_ENDS)] = True
    attached = queried & ~_unchanged("a", "")
    extend = attached & _unchanged(_PICTURE, _JOINER + _PICTURE + _MARK)
    extend[ord(_JOINER)] = False
    prepended = _unchanged("", "a" + _MARK)
    picture = _unchanged(_PICTURE + _JOINER, "") & ~attached
    consonant = _unchanged("", _LINKER + _CONSONANT + _MARK) & ~prepended
    conjunct = attached & _unchanged(_CONSONANT + _LINKER, _CONSONANT + _MARK)
    linker = attached & _unchanged(_CONSONANT, _CONSONANT + _MARK)
    of_indic = (consonant, conjunct, linker)
    return (control, attached, extend, prepended, picture, *of_indic, *_hangul(prepended))


def _hangul(prepended: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the leads, vowels and trails of Hangul, and its open and closed syllables."""
    lead, vowel, trail = (
        _unchanged("", letter + _MARK) & ~prepended for letter in (_SYLLABLE, _VOWEL, _TRAIL)
    )
    syllable = np.zeros(CHARACTERS, bool)
    syllable[_SYLLABLES] = True
    both, closed = vowel & trail, trail & ~vowel
    return lead, both & ~syllable, closed & ~syllable, both & syllable, closed & syllable
