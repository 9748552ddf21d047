"""ONNX operators of signals: Fourier transforms and windows."""

import numpy as np

from pockengine.frontends import emit
from pockengine.frontends.emit.complex import Complex
from pockengine.frontends.emit.fourier import fft, irfft, of_length
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.onnx.ops.registry import OnnxContext, integers, onnx_op

WINDOWS = {
    "BlackmanWindow": (0.42, 0.5, 0.08),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "HannWindow": (0.5, 0.5, 0.0),
}
"""a - b cos(t) + c cos(2 t), with t from 0 to a whole turn."""


def _parts(ctx: OnnxContext, x: Tensor) -> Complex:
    """Read (..., 1) as real numbers and (..., 2) as complex ones."""
    real = emit.squeeze(ctx.g, emit.slice_dim(ctx.g, x, -1, start=0, stop=1), [-1])
    if x.shape[-1] == 1:
        return Complex(real, emit.weighted(ctx.g, real, 0.0))
    return Complex(real, emit.squeeze(ctx.g, emit.slice_dim(ctx.g, x, -1, start=1, stop=2), [-1]))


def _joined(ctx: OnnxContext, x: Complex) -> Tensor:
    """Return complex numbers as (..., 2)."""
    pair = [reshape(ctx.g, part, (*part.shape, 1)) for part in (x.real, x.imag)]
    return emit.concat(ctx.g, pair, len(x.shape))


@onnx_op("DFT", static=(1, 2))
def dft(
    ctx: OnnxContext,
    x: Tensor,
    dft_length: np.ndarray | None = None,
    axis_input: np.ndarray | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    """Transform along a dimension; the last one holds a number's parts."""
    own = -2 if ctx.opset >= 20 else axis
    dim = (own if axis_input is None else int(np.ravel(axis_input)[0])) % x.rank
    length = None if dft_length is None else int(np.ravel(dft_length)[0])
    if onesided and inverse:
        points = length or 2 * (x.shape[dim] - 1)
        halves = _parts(ctx, of_length(ctx.g, x, dim, points // 2 + 1))
        real = irfft(ctx.g, halves, dim, points=points, factor=1 / points)
        return reshape(ctx.g, real, (*real.shape, 1))
    points = length or x.shape[dim]
    whole = _parts(ctx, of_length(ctx.g, x, dim, points))
    y = fft(ctx.g, whole, dim, 1 / points if inverse else 1.0, forward=not inverse)
    bins = points // 2 + 1 if onesided else points
    return emit.slice_dim(ctx.g, _joined(ctx, y), dim, start=0, stop=bins)


@onnx_op("STFT", static=(1, 3))
def stft(
    ctx: OnnxContext,
    signal: Tensor,
    frame_step: np.ndarray,
    window: Tensor | None = None,
    frame_length: np.ndarray | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """Transform frames of (batch, length, 1) to (batch, frames, frequencies, 2)."""
    (step,), g = integers(frame_step) or [1], ctx.g
    lengths = integers(frame_length)
    if lengths is None and window is None:
        raise Unsupported("frames without a window or a length")
    points = lengths[0] if lengths is not None else window.shape[0] if window is not None else 0
    count = (signal.shape[1] - points) // step + 1
    frames = [
        reshape(g, part, (signal.shape[0], 1, points, signal.shape[2]))
        for part in (
            emit.slice_dim(g, signal, 1, start=step * i, stop=step * i + points)
            for i in range(count)
        )
    ]
    x = emit.concat(g, frames, 1)
    if window is not None:
        x = emit.arithmetic(g, "mul", x, reshape(g, window, (points, 1)))
    y = _joined(ctx, fft(g, _parts(ctx, x), 2, 1.0, forward=True))
    return emit.slice_dim(g, y, 2, start=0, stop=points // 2 + 1 if onesided else points)


def _define_window(name: str, factors: tuple[float, float, float]) -> None:
    @onnx_op(name, static=(0,))
    def window(
        ctx: OnnxContext, size: np.ndarray, *, output_datatype: int = 1, periodic: int = 1
    ) -> np.ndarray:
        """Weigh the points of a frame."""
        if output_datatype != 1:
            raise Unsupported("a window of another type than float32")
        count, (a, b, c) = int(np.ravel(size)[0]), factors
        turns = 2 * np.pi * np.arange(count) / (count if periodic else max(count - 1, 1))
        return (a - b * np.cos(turns) + c * np.cos(2 * turns)).astype(np.float32)


for _name, _factors in WINDOWS.items():
    _define_window(_name, _factors)
