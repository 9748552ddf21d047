"""Examples packed into rows of one length.

Positions begin again at 0 with each example, by which transformers' models know that it is to see
nothing of those before it in the row. What is left of a row is filled with texts of one token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pockengine.finetune.lm.tokens import Tokens
from pockengine.finetune.task import IGNORED

LABELS = "labels"
"""What decoders call the tokens to predict."""
OPEN_ROWS = 64
"""Rows that are not full are looked through for room; more are closed, the fullest first."""


@dataclass(frozen=True)
class Packed:
    """Rows [N, L] by the model's inputs, and how many tokens in them are of texts."""

    arrays: dict[str, np.ndarray]
    tokens: int

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.arrays["input_ids"])

    @property
    def counted(self) -> np.ndarray:
        """Tokens of each row that count in the loss."""
        count: np.ndarray = (self.arrays[LABELS][:, 1:] != IGNORED).sum(axis=1)
        return count


def pack(examples: Sequence[Tokens], length: int, together: bool = True) -> Packed:
    """Lay each example into the first row of `length` that has room, or into one of its own."""
    rows: list[list[Tokens]] = []
    room: dict[int, int] = {}
    for example in examples:
        size = len(example.ids)
        row = next((r for r, free in room.items() if free >= size), None) if together else None
        if row is None:
            row = len(rows)
            rows.append([])
            room[row] = length
        rows[row].append(example)
        room[row] -= size
        if len(room) > OPEN_ROWS or not room[row]:
            del room[min(room, key=lambda r: room[r])]
    arrays = _empty(len(rows), length)
    for row, texts in enumerate(rows):
        _fill({name: array[row] for name, array in arrays.items()}, texts)
    return Packed(arrays, sum(len(example.ids) for example in examples))


def _empty(rows: int, length: int) -> dict[str, np.ndarray]:
    return {
        "input_ids": np.zeros((rows, length), np.int64),
        "labels": np.full((rows, length), IGNORED, np.int64),
        "position_ids": np.zeros((rows, length), np.int64),
    }


def _fill(row: dict[str, np.ndarray], texts: Sequence[Tokens]) -> None:
    at = 0
    for text in texts:
        place = slice(at, at + len(text.ids))
        row["input_ids"][place] = text.ids
        row["labels"][place] = text.labels
        row["position_ids"][place] = np.arange(len(text.ids))
        row["labels"][at] = IGNORED  # nothing of this text stands before its first token
        at += len(text.ids)
