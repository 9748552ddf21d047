"""Choose the range of real numbers that a tensor's integers cover, from samples.

minmax all samples percentile all but the most extreme share on each side mse the range with the
least squared error of rounding and clamping
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pockengine.errors import CompileError

LOW, HIGH = -128, 127

SHRUNK = np.linspace(0.3, 1.0, 57)
"""Fractions of the whole range that `mse` tries."""

MOST_SAMPLES = 200_000
"""Maximum numbers per batch that are examined for percentiles and errors."""


@dataclass(frozen=True)
class QuantizedRange:
    """Scale and zero point of a tensor: q represents scale (q - zero)."""

    scale: float
    zero: int

    def integers(self, real: np.ndarray) -> np.ndarray:
        """Quantize real numbers to the nearest i8."""
        nearest = np.rint(real / np.float32(self.scale)) + self.zero
        return np.asarray(np.clip(nearest, LOW, HIGH), np.int8)


def range_of(samples: Sequence[np.ndarray], method: str, share: float) -> QuantizedRange:
    """Choose a range for the samples; CompileError if there is none.

    `share` is the fraction that `percentile` leaves out on each side.
    """
    low, high = METHODS[method](samples, share)
    return affine(low, high)


def affine(low: float, high: float) -> QuantizedRange:
    """Spread all integers over a range, widened to include 0, which is represented exactly."""
    low, high = min(low, 0.0), max(high, 0.0)
    if not math.isfinite(low) or not math.isfinite(high):
        raise CompileError("not every number that it takes on the samples is finite")
    scale = float(np.float32((high - low) / (HIGH - LOW)))
    if scale == 0 or not math.isfinite(scale):
        raise CompileError("it is 0 on every sample" if scale == 0 else "its range is infinite")
    zero = round(LOW - low / scale)
    return QuantizedRange(scale, max(LOW, min(HIGH, zero)))


def _minmax(samples: Sequence[np.ndarray], share: float) -> tuple[float, float]:
    return min(float(s.min()) for s in samples), max(float(s.max()) for s in samples)


def _percentile(samples: Sequence[np.ndarray], share: float) -> tuple[float, float]:
    seen = _some(samples)
    low, high = np.quantile(seen, [share, 1 - share])
    return float(low), float(high)


def _mse(samples: Sequence[np.ndarray], share: float) -> tuple[float, float]:
    seen, (low, high) = _some(samples), _minmax(samples, share)
    if not math.isfinite(high - low) or low == high:
        return low, high
    errors = [_error(seen, affine(low * part, high * part)) for part in SHRUNK]
    best = float(SHRUNK[int(np.argmin(errors))])
    return low * best, high * best


def _error(real: np.ndarray, tried: QuantizedRange) -> float:
    q = np.clip(np.rint(real / tried.scale) + tried.zero, LOW, HIGH)
    return float(np.square((q - tried.zero) * tried.scale - real).mean())


def _some(samples: Sequence[np.ndarray]) -> np.ndarray:
    """Every n-th number of the samples, few enough to sort quickly."""
    every = max(1, sum(s.size for s in samples) // MOST_SAMPLES)
    return np.concatenate([s.reshape(-1)[::every] for s in samples]).astype(np.float64)


METHODS: dict[str, Callable[[Sequence[np.ndarray], float], tuple[float, float]]] = {
    "minmax": _minmax,
    "percentile": _percentile,
    "mse": _mse,
}
