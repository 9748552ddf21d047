"""Affine quantization: scale (q - zero), with one pair for all or one per channel."""

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.scalars import DType
from pockengine.errors import GraphError

PATTERN = r"<scale=\([^>]*\), zero=\([^>]*\)(?:, axis=\d+)?>"
"""The text form."""

_PARTS = re.compile(r"<scale=(\(.*?\)), zero=(\(.*?\))(?:, axis=(\d+))?>")


@dataclass(frozen=True)
class Quantization:
    """Scales and zero points: one of each, or one per index along `axis`."""

    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int | None = None

    def __post_init__(self) -> None:
        if len(self.scales) != len(self.zeros) or (self.axis is None and len(self.scales) != 1):
            raise GraphError(
                f"{len(self.scales)} scales and {len(self.zeros)} zero points, axis {self.axis}: "
                "give one of each, or as many of each as the axis has places"
            )
        if not all(math.isfinite(scale) and scale > 0 for scale in self.scales):
            raise GraphError(f"scales {self.scales} must be positive and finite")

    def __str__(self) -> str:
        place = "" if self.axis is None else f", axis={self.axis}"
        return f"<scale={self.scales}, zero={self.zeros}{place}>"

    def check(self, dtype: DType, shape: tuple[int, ...]) -> None:
        """Raise GraphError unless values of this type can have this quantization."""
        if not dtype.is_integer:
            raise GraphError(f"{dtype.value} cannot be quantized; integers stand for real numbers")
        limits = np.iinfo(str(dtype.numpy))
        if not all(limits.min <= zero <= limits.max for zero in self.zeros):
            raise GraphError(f"zero points {self.zeros} are outside of {dtype.value}")
        if self.axis is not None and shape[self.axis : self.axis + 1] != (len(self.scales),):
            raise GraphError(
                f"{len(self.scales)} scales along axis {self.axis} do not fit shape {shape}"
            )

    def transposed(self, perm: Sequence[int]) -> "Quantization":
        """The quantization of a tensor transposed by this permutation."""
        if self.axis is None:
            return self
        return Quantization(self.scales, self.zeros, list(perm).index(self.axis))

    def real(self, integers: np.ndarray) -> np.ndarray:
        """Dequantize to f32; computed in double precision."""
        scale, zero = self._parts(integers.ndim)
        return np.asarray((integers.astype(np.float64) - zero) * scale, np.float32)

    def integers(self, real: np.ndarray, limit: int = 127) -> np.ndarray:
        """Return the nearest i8, limited to magnitude `limit`; halves to even."""
        return np.asarray(np.clip(self._nearest(real), -limit, limit), np.int8)

    def rounded(self, real: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return the nearest integers of any type; halves to even."""
        limits = np.iinfo(dtype)
        return np.asarray(np.clip(self._nearest(real), limits.min, limits.max), dtype)

    def _nearest(self, real: np.ndarray) -> np.ndarray:
        scale, zero = self._parts(real.ndim)
        return np.asarray(np.rint(real / scale) + zero)

    def _parts(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Return scales and zero points that broadcast to a tensor of this rank."""
        shape = [1] * rank
        if self.axis is not None:
            shape[self.axis] = len(self.scales)
        return np.reshape(self.scales, shape), np.reshape(self.zeros, shape)


def parse_quantization(text: str) -> Quantization:
    """Parse the text form; GraphError if it is malformed."""
    match = _PARTS.fullmatch(text)
    if match is None:
        raise GraphError(f"{text} is no quantization")
    scales, zeros = (ast.literal_eval(match[part]) for part in (1, 2))
    axis = None if match[3] is None else int(match[3])
    return Quantization(tuple(map(float, scales)), tuple(map(int, zeros)), axis)
