"""Pack examples into rows of one length.

Positions restart at 0 with each example, so transformers' models mask the examples before it in the
row. The remainder of a row is filled with texts of one token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pockengine.finetune.lm.tokens import Tokens
from pockengine.finetune.task import IGNORED

LABELS = "labels"
"""Name of a decoder's tokens to predict."""
LOGITS = "logits"
"""Name of a decoder's output."""
SIGNS = "signs"
"""Input (rows, length): 1 at tokens of a row's first answer, -1 at those of the second."""
OPEN_ROWS = 64
"""Maximum number of open rows searched for room; beyond that the fullest are closed."""


@dataclass(frozen=True)
class Packed:
    """Rows [N, L] by the model's inputs, and the number of their tokens that belong to texts."""

    arrays: dict[str, np.ndarray]
    tokens: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.arrays["input_ids"])

    @property
    def counted(self) -> np.ndarray:
        """Number of tokens per row that count in the loss."""
        count: np.ndarray = (self.arrays[LABELS][:, 1:] != IGNORED).sum(axis=1)
        return count


def pack(examples: Sequence[Tokens], length: int, together: bool = True) -> Packed:
    """Put each example into the first row of `length` with room, or into a new one."""
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
    return rows_of(rows, length)


def rows_of(rows: Sequence[Sequence[Tokens]], length: int) -> Packed:
    """Concatenate the texts of each row."""
    arrays = _empty(len(rows), length)
    for row, texts in enumerate(rows):
        _fill({name: array[row] for name, array in arrays.items()}, texts)
    return Packed(arrays, sum(len(text.ids) for texts in rows for text in texts))


def signed_rows(texts: Sequence[Sequence[Tokens]], length: int) -> Packed:
    """Concatenate the texts of each row, and mark the answers of the first by 1, else by -1."""
    packed = rows_of(texts, length)
    labels = packed.arrays[LABELS]
    signs = np.full(labels.shape, -1, np.float32)
    for row, (first, *_) in enumerate(texts):
        signs[row, : len(first.ids)] = 1
    signs[labels == IGNORED] = 0
    packed.arrays[SIGNS] = signs
    return packed


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
        row["labels"][at] = IGNORED  # no token precedes the first one of a text
        at += len(text.ids)
