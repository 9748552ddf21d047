"""Rescale integers by fixed-point multipliers, as TensorFlow Lite's kernels do."""

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Value
from pockengine.compiler.ops.quantized import fixed_point, rescaled

REACH = 256
"""Results beyond it are clamped: i8 with a zero point differ by at most 255."""

STEPS = (0, 1, -1, 2, -2, 3, -3, 4, -4)
"""Changes of a multiplier's last bit that are tried, in this order."""

MOST = (1 << 30) - 1
"""Largest sum for which a slightly larger multiplier rounds halves away and changes no other."""

CHANNELS = 1024
"""Channels whose multipliers are checked at a time."""


def rescaled_by(g: Builder, integers: Value, factor: np.ndarray) -> Value:
    """Rescale by factors, one for all or one per channel."""
    return _rescaled(g, integers, *fixed_point(factor))


def rescaled_once(g: Builder, integers: Value, factor: np.ndarray) -> Value:
    """Rescale by factors so that each result is round(integer factor), computed in f64.

    Halves round away from zero. This is the reference arithmetic of FULLY_CONNECTED.
    """
    return _rescaled(g, integers, *nearest_fixed_point(factor), once=True)


def _rescaled(
    g: Builder, integers: Value, multiplier: np.ndarray, exponent: np.ndarray, once: bool = False
) -> Value:
    down = bool(np.all(exponent < 0))
    fixed = (g.constant(multiplier), g.constant(exponent))
    return g.rescale(integers, *fixed, down=down, once=once)


def nearest_fixed_point(factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return multipliers and exponents with which `rescale` rounds once as f64 does.

    A multiplier of 31 bits, rounded from 53, moves a result only if the product is within 2^-24 of
    a half. Exact halves are the common case: a slightly larger multiplier rounds them away from
    zero. The first of `STEPS` is used with which all results up to `REACH` of sums up to `MOST` are
    right; 0 if none is, as for some factors below 2^-16, of which only large sums come so close to
    a half.
    """
    factors = np.asarray(factors, np.float64)
    multiplier, exponent = fixed_point(factors)
    flat = multiplier.reshape(-1).copy()
    for start in range(0, flat.size, CHANNELS):
        part = slice(start, start + CHANNELS)
        given = factors.reshape(-1)[part], flat[part], exponent.reshape(-1)[part]
        flat[part] += _step(*given)
    return flat.reshape(multiplier.shape), exponent


def _step(factors: np.ndarray, multiplier: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Return by how much to change each multiplier."""
    integers = _around_halves(factors)
    expected = _rounded(integers * factors[:, None])
    step, unknown = np.zeros_like(multiplier), np.flatnonzero(multiplier)
    for change in STEPS:
        changed = multiplier[unknown].astype(np.int64) + change
        fixed = changed[:, None], exponent[unknown, None]
        made = rescaled(integers[unknown], *fixed, once=True)
        right = np.all(made == expected[unknown], axis=1) & (changed < 1 << 31)
        step[unknown[right]] = change
        unknown = unknown[~right]
    return step


def _around_halves(factors: np.ndarray) -> np.ndarray:
    """Return the integers on both sides of each half, per factor."""
    halves = np.arange(-REACH, REACH) + 0.5
    below = np.floor(halves / factors[:, None])
    near = below[:, :, None] + np.arange(-1, 3)
    return np.asarray(np.clip(near, -MOST, MOST).reshape(len(factors), -1), np.int32)


def _rounded(x: np.ndarray) -> np.ndarray:
    """Round with halves away from zero."""
    return np.asarray(np.trunc(x) + np.trunc(2 * (x - np.trunc(x))))
