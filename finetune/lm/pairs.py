"""Preferences as rows of tokens: the chosen answer, followed by the rejected one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.errors import FinetuneError
from pockengine.finetune.lm.methods import REFERENCE, Method
from pockengine.finetune.lm.packing import Packed, signed_rows
from pockengine.finetune.lm.texts import Pair
from pockengine.finetune.lm.tokens import Tokens, named, tokenize


@dataclass(frozen=True)
class PairTokens:
    """Both answers of a pair as tokens, each after the prompt."""

    line: int
    chosen: Tokens
    rejected: Tokens

    @property
    def ids(self) -> Sequence[int]:
        """All tokens of the pair's row."""
        return [*self.chosen.ids, *self.rejected.ids]


def tokenize_pairs(
    tokenizer: Any, pairs: Iterable[Pair], path: Path, length: int
) -> tuple[list[PairTokens], list[str]]:
    """Tokenize a file's pairs, and report skipped ones.

    FinetuneError if no pair is left: a pair needs two answers that fit into one row of `length`.
    """
    tokenized: list[PairTokens] = []
    empty, long, rewritten = [], [], []
    for pair in pairs:
        found = tokenize(tokenizer, (pair.chosen, pair.rejected), _UNLIMITED)
        both = found.examples
        if found.rewritten:
            rewritten.append(pair.chosen.line)
        elif len(both) < 2:
            empty.append(pair.chosen.line)
        elif sum(len(tokens.ids) for tokens in both) > length:
            long.append(pair.chosen.line)
        else:
            tokenized.append(PairTokens(pair.chosen.line, *both))
    remarks = [
        f"{path}: {len(lines)} pairs {fact}, and are left out: line {named(lines)}"
        for lines, fact in (
            (empty, "lack an answer"),
            (long, f"need over {length} tokens"),
            (rewritten, "have answers that the template changes once later turns follow"),
        )
        if lines
    ]
    if not tokenized:
        raise FinetuneError(
            f"{path} leaves no pair ({'; '.join(remarks)}); both answers with their prompts must "
            f"fit into --max-length {length} tokens"
        )
    return tokenized, remarks


_UNLIMITED = 1 << 40
"""Token limit of a single answer: only the pair's row is limited."""


def pack_pairs(pairs: Sequence[PairTokens], length: int, method: Method) -> Packed:
    """Put each pair into its own row; reference margins are 0 until they are computed."""
    packed = signed_rows([(pair.chosen, pair.rejected) for pair in pairs], length)
    if method.refers:
        packed.arrays[REFERENCE] = np.zeros(len(pairs), np.float32)
    return packed
