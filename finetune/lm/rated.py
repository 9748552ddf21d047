"""Rated answers as rows of tokens: labels, good or bad, and rewards.

KTO estimates the divergence from the model before training on mismatched answers: each row also has
its prompt with the answer of the previous row of the batch (arXiv:2402.01306, section 4.1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.errors import FinetuneError
from pockengine.finetune.lm.methods import RATING, REFERENCE, Method
from pockengine.finetune.lm.packing import Packed, signed_rows
from pockengine.finetune.lm.texts import Rated
from pockengine.finetune.lm.tokens import Tokens, tokenize
from pockengine.finetune.task import IGNORED


@dataclass(frozen=True)
class RatedTokens:
    """A text with a rated answer, as tokens."""

    tokens: Tokens
    rating: float

    @property
    def line(self) -> int:
        """Its line in the file."""
        return self.tokens.line

    @property
    def ids(self) -> Sequence[int]:
        """Its tokens."""
        return self.tokens.ids

    @property
    def start(self) -> int:
        """Number of tokens before the answer."""
        return next(at for at, label in enumerate(self.tokens.labels) if label != IGNORED)


def tokenize_rated(
    tokenizer: Any, rated: Iterable[Rated], path: Path, length: int
) -> tuple[list[RatedTokens], list[str]]:
    """Tokenize a file's answers, and report skipped ones; FinetuneError if none is left."""
    ratings = {each.example.line: each.rating for each in rated}
    found = tokenize(tokenizer, (each.example for each in rated), length)
    remarks = found.remarks(path, length)
    if not found.examples:
        raise FinetuneError(
            f"{path} leaves no answer ({'; '.join(remarks)}); give answers of at most {length} "
            "tokens with their prompts, or a larger --max-length"
        )
    return [RatedTokens(tokens, ratings[tokens.line]) for tokens in found.examples], remarks


def pack_rated(rated: Sequence[RatedTokens], length: int, method: Method, batch: int) -> Packed:
    """Put each answer into its own row; references are 0 until they are computed."""
    texts = [[each.tokens] for each in rated]
    if method.refers:
        for at in range(0, len(rated), batch):
            group = rated[at : at + batch]
            for place, each in enumerate(group):
                other = group[place - 1] if len(group) > 1 else rated[at - 1]
                texts[at + place].append(_mismatched(each, other, length))
    packed = signed_rows(texts, length)
    packed.arrays[RATING] = np.array([each.rating for each in rated], np.float32)
    if method.refers:
        packed.arrays[REFERENCE] = np.zeros((len(rated), 2), np.float32)
    return packed


def _mismatched(one: RatedTokens, other: RatedTokens, length: int) -> Tokens:
    """Return a prompt with another text's answer, cut to the row's length."""
    room = length - len(one.ids)
    ids = [*one.ids[: one.start], *other.ids[other.start :]][:room]
    labels = [*one.tokens.labels[: one.start], *other.tokens.labels[other.start :]][:room]
    return Tokens(one.line, ids, labels)
