"""Rules that normalize a text, as sections of a tokenizer's table (pe_tokenizer_table.h)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pockengine.errors import ImportModelError
from pockengine.models.split_patterns import Group, Item, Program, Run, compiled
from pockengine.models.tokenizer_form import (
    AT_SPACES,
    UNIGRAM,
    CutSpaces,
    Form,
    MapClusters,
    Replace,
    Rule,
)
from pockengine.models.unicode_clusters import cluster_sets

MAP_CLUSTERS, REPLACE, CUT_SPACES = 0, 1, 2
"""Kinds of a rule."""
MOST_GROWTH = 1024
FIRST_SET = 19
"""The first set of clusters; those before are sets of patterns."""
_MARK_BYTES = 3
"""Bytes of U+2581, which a space becomes; between words, the space stays before it."""


@dataclass(frozen=True)
class Rules:
    """Kind, operand and content of each rule; the tries behind the vocabulary's; the contents."""

    rows: Sequence[tuple[int, int, int]]
    tries: Sequence[Mapping[bytes, int]]
    contents: bytes


def rules_of(form: Form) -> tuple[Program, Rules]:
    """Return the steps of all patterns, those that split first, and the rules."""
    replaced = [rule.pattern for rule in form.rules if isinstance(rule, Replace)]
    program = compiled([*form.patterns, *replaced])
    starts = iter(program.starts[len(form.patterns) :])
    rows, tries, contents = [], list[dict[bytes, int]](), _Contents()
    for rule in form.rules:
        match rule:
            case MapClusters(texts):
                tries.append({key: contents.place(text) for key, text in texts.items()})
                root = len(tries) - (not form.flags & UNIGRAM)
                rows.append((MAP_CLUSTERS, root, 0))
            case Replace(_, content):
                rows.append((REPLACE, next(starts), contents.place(content.encode())))
            case CutSpaces(sides):
                rows.append((CUT_SPACES, sides, 0))
    return program, Rules(rows, tries, bytes(contents.data))


class _Contents:
    """Texts, each with a zero byte at its end."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._places: dict[bytes, int] = {}

    def place(self, text: bytes) -> int:
        """Return where a text is; it is added if it is new."""
        if text not in self._places:
            self._places[text] = len(self.data)
            self.data += text + b"\0"
        return self._places[text]


def masks_of(form: Form, program: Program) -> np.ndarray:
    """Return the sets of every character as bits, u32[0x110000]."""
    masks = program.masks()
    if any(isinstance(rule, MapClusters) for rule in form.rules):
        if len(program.sets) > FIRST_SET:
            raise ImportModelError(
                f"the tokenizer's patterns have {len(program.sets)} sets of characters; the C "
                f"runtime has at most {FIRST_SET} beside a precompiled charsmap"
            )
        for place, members in enumerate(cluster_sets(), FIRST_SET):
            masks |= members.astype(np.uint32) << np.uint32(place)
    return masks


def growth(form: Form) -> int:
    """Return how many bytes a byte of a text becomes at most, by the rules and marks of spaces.

    ImportModelError if they are more than MOST_GROWTH.
    """
    space = _MARK_BYTES + bool(form.flags & AT_SPACES)
    most = float(space)
    for place, rule in enumerate(rule for rule in form.rules if not isinstance(rule, CutSpaces)):
        sizes = _sizes(rule, space) if place else _sizes(rule, 1)
        ratio = max(_size(text, space) / least for text, least in sizes)
        most = most * max(1.0, ratio) if place else max(most, ratio)
    if most > MOST_GROWTH:
        raise ImportModelError(
            f"the tokenizer's normalizer makes a text {most:.0f} times as long; the C runtime "
            f"reserves memory for at most {MOST_GROWTH} times"
        )
    return math.ceil(most)


def _sizes(rule: Rule, space: int) -> list[tuple[bytes, int]]:
    """Return the texts that a rule writes, and the least size of what each replaces."""
    match rule:
        case MapClusters(texts):
            return [(text, _size(key, space)) for key, text in texts.items()]
        case Replace(pattern, content):
            return [(content.encode(), _least(pattern, space))]
    return []


def _size(text: bytes, space: int) -> int:
    """Return the bytes of a text in which each space becomes `space` bytes."""
    return sum(space if c.isspace() else len(c.encode()) for c in text.decode())


def _least(item: Item, space: int) -> int:
    """Return the least size of a match; a set of characters may be one of a byte."""
    match item:
        case Run(chars, least):
            return least * (space if chars == " " else 1)
        case Group(options, optional):
            sizes = [sum(_least(part, space) for part in option) for option in options]
            return 0 if optional else min(sizes)
    return 0
