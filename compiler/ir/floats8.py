"""The numbers of 8-bit floats in safetensors, by code.

E4M3 (without infinities) and E5M2: FP8 Formats for Deep Learning (arXiv 2209.05433), table 1. E8M0,
powers of two: OCP Microscaling Formats 1.0, 5.4.1.
"""

import numpy as np


def _floats(exponent_bits: int) -> np.ndarray:
    """Return the numbers as IEEE 754 defines them, except those of the largest exponent."""
    codes = np.arange(256)
    fraction_bits = 7 - exponent_bits
    exponent = codes >> fraction_bits & (1 << exponent_bits) - 1
    fraction = codes & (1 << fraction_bits) - 1
    significand = fraction + np.where(exponent == 0, 0, 1 << fraction_bits)
    bias = (1 << exponent_bits - 1) - 1
    size = np.ldexp(significand.astype(np.float32), np.maximum(exponent, 1) - bias - fraction_bits)
    numbers: np.ndarray = np.where(codes < 128, size, -size)
    return numbers


def _e4m3() -> np.ndarray:
    numbers = _floats(4)
    numbers[[0x7F, 0xFF]] = np.nan
    return numbers


def _e5m2() -> np.ndarray:
    numbers = _floats(5)
    numbers[[0x7C, 0xFC]] = np.inf, -np.inf
    numbers[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return numbers


def _e8m0() -> np.ndarray:
    return np.append(np.ldexp(np.float32(1), np.arange(255) - 127), np.float32(np.nan))


FLOATS8 = {"F8_E4M3": _e4m3(), "F8_E5M2": _e5m2(), "F8_E8M0": _e8m0()}
"""f32 of each code, by safetensors' names of the types."""
