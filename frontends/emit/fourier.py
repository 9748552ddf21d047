"""Discrete Fourier transforms along one dimension, as products with matrices of cosines and sines.

Kernels and gradients are fastest for matrix products, and an audio front end needs only some
hundred points. `factor` scales the result.
"""

import numpy as np

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.complex import Complex
from pockengine.frontends.emit.nn import Unsupported, along_dim
from pockengine.frontends.layout import Tensor

LONGEST = 2048
"""Points of a transform: its matrices have 4 bytes for each pair of a point and a frequency."""


def _waves(points: int, frequencies: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, each (points, frequencies)."""
    if points > LONGEST:
        raise Unsupported(
            f"a Fourier transform of {points} points; {LONGEST} are the most: cut the signal into "
            "frames (torch.stft)"
        )
    turns = np.outer(np.arange(points), np.arange(frequencies)) % points / points
    return np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)


def _times(g: Builder, x: Tensor, dim: int, matrix: np.ndarray) -> Tensor:
    return along_dim(g, x, dim, matrix.astype(np.float32))


def rfft(g: Builder, x: Tensor, dim: int, factor: float, *, whole: bool) -> Complex:
    """Transform real numbers; without `whole`, to frequencies up to half of the points."""
    points = x.shape[dim]
    cosines, sines = _waves(points, points if whole else points // 2 + 1)
    return Complex(_times(g, x, dim, factor * cosines), _times(g, x, dim, -factor * sines))


def irfft(g: Builder, x: Complex, dim: int, points: int, factor: float) -> Tensor:
    """Transform frequencies up to half of the points back into real numbers."""
    cosines, sines = _waves(points, points // 2 + 1)
    twice = np.full(points // 2 + 1, 2 * factor)
    twice[0] = factor
    if points % 2 == 0:
        twice[-1] = factor
    parts = [emit.slice_dim(g, part, dim, start=0, stop=len(twice)) for part in (x.real, x.imag)]
    real = _times(g, parts[0], dim, (twice * cosines).T)
    return emit.arithmetic(g, "sub", real, _times(g, parts[1], dim, (twice * sines).T))


def fft(g: Builder, x: Complex, dim: int, factor: float, *, forward: bool) -> Complex:
    """Transform complex numbers, forward by exp(-i ...), back by exp(i ...)."""
    points = x.shape[dim]
    cosines, sines = _waves(points, points)
    sines = sines if forward else -sines
    cosines, sines = factor * cosines, factor * sines
    return Complex(
        emit.arithmetic(g, "add", _times(g, x.real, dim, cosines), _times(g, x.imag, dim, sines)),
        emit.arithmetic(g, "sub", _times(g, x.imag, dim, cosines), _times(g, x.real, dim, sines)),
    )


def of_length(g: Builder, x: Tensor, dim: int, length: int) -> Tensor:
    """Cut a dimension, or pad it with zeros, at its end."""
    high = tuple(length - x.shape[dim] if other == dim else 0 for other in range(x.rank))
    return emit.pad(g, x, (0,) * x.rank, high, value=0.0)
