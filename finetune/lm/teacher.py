"""Stored logits of a teacher, in a safetensors file.

    logits.LINE     [tokens, k] numbers; row t predicts token t + 1 of the text of this line
    indices.LINE    [tokens, k] integers: the tokens of these logits; absent if k is the
                    vocabulary

The teacher's probabilities p are the softmax of the stored logits alone. A token's loss is the
Kullback-Leibler divergence sum p (log p - log q), with q the student's softmax over its whole
vocabulary (Hinton et al., 2015; arXiv:1503.02531).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from pockengine.errors import FinetuneError, reason_of
from pockengine.finetune.lm.packing import Packed, signed_rows
from pockengine.finetune.lm.tokens import Tokens

PROBABILITIES, ENTROPY, INDICES = "teacher", "teacher_entropy", "teacher_indices"
"""Inputs: p (rows, length, k), sum p log p (rows, length), and the tokens (rows, length, k)."""


class Teacher:
    """The logits of a file by line; FinetuneError if it is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._tensors: Mapping[str, np.ndarray] = load_file(path)
        except (OSError, SafetensorError, LookupError, AttributeError) as error:
            raise FinetuneError(
                f"{path} cannot be read as safetensors of f32, f16 and integers: {reason_of(error)}"
            ) from error
        widths = {
            array.shape[1:] for name, array in self._tensors.items() if name.startswith("logits.")
        }
        if len(widths) != 1 or len(next(iter(widths))) != 1:
            raise FinetuneError(
                f"{path} has logits of the widths {sorted(widths)}; store tensors logits.LINE "
                "[tokens, k] of one k"
            )
        self.width: int = next(iter(widths))[0]
        self.partial = any(name.startswith("indices.") for name in self._tensors)

    def check(self, vocabulary: int) -> None:
        """Raise FinetuneError if the logits are not of tokens of this vocabulary."""
        if not self.partial and self.width != vocabulary:
            raise FinetuneError(
                f"{self.path} has {self.width} logits per token and no indices, and the model "
                f"knows {vocabulary} tokens; store indices.LINE too"
            )
        for name, array in self._tensors.items():
            integers = array.dtype.kind in "iu" and array.size
            if name.startswith("indices.") and not (
                integers and array.min() >= 0 and array.max() < vocabulary
            ):
                raise FinetuneError(f"{self.path}: {name} must be integers below {vocabulary}")

    def pack(self, examples: Sequence[Tokens], length: int) -> Packed:
        """Put each text into its own row, beside the teacher's probabilities."""
        packed = signed_rows([[example] for example in examples], length)
        shape = (len(examples), length, self.width)
        probabilities = np.zeros(shape, np.float32)
        indices = np.zeros(shape, np.int64)
        for row, example in enumerate(examples):
            place = (row, slice(len(example.ids)))
            probabilities[place] = _softmax(self._logits(example))
            if self.partial:
                indices[place] = self._rows("indices", example)
        logarithms = np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
        packed.arrays[PROBABILITIES] = probabilities
        packed.arrays[ENTROPY] = (probabilities * logarithms).sum(axis=2, dtype=np.float32)
        if self.partial:
            packed.arrays[INDICES] = indices
        return packed

    def _logits(self, example: Tokens) -> np.ndarray:
        """Return a line's logits in f32; FinetuneError if one is not finite."""
        logits = self._rows("logits", example).astype(np.float32)
        finite = np.isfinite(logits).all(axis=1)
        if not finite.all():
            raise FinetuneError(
                f"{self.path}: logits.{example.line} has numbers that are not finite in row "
                f"{int(finite.argmin())}; store them again, in f32 if f16 overflows"
            )
        return logits

    def _rows(self, kind: str, example: Tokens) -> np.ndarray:
        """Return a line's tensor; FinetuneError if it is of another text."""
        name, expected = f"{kind}.{example.line}", (len(example.ids), self.width)
        array = self._tensors.get(name)
        if array is None or array.shape != expected:
            found = "no such tensor" if array is None else f"it is {list(array.shape)}"
            raise FinetuneError(
                f"{self.path}: {name} must be {list(expected)}, and {found}; store the logits of "
                "the same texts and tokenizer"
            )
        return array


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    total: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
    return total
