"""ONNX operators that enlarge or shrink: Resize, Upsample, and transposed convolution.

Interpolation is linear in the pixels, so each dimension is multiplied by a constant matrix.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit.nn import Unsupported, Window
from pockengine.frontends.emit.sampling import Between, Outside, sample
from pockengine.frontends.emit.volume import HWDIO, conv_transpose3d
from pockengine.frontends.layout import (
    HWIO,
    NHWC,
    Layout,
    Tensor,
    framework_order,
    reshape,
    stored,
)
from pockengine.frontends.onnx.ops.registry import OnnxContext, dims_of, onnx_op

Place = Callable[[np.ndarray, int, int, np.float32], np.ndarray]
"""From places in the result, old size, new size and scale to places in the input.

All are computed in f32, as in ONNX Runtime: the nearest element depends on the last bit.
"""

PLACES: dict[str, Place] = {
    "align_corners": lambda i, old, new, scale: (
        i * (old - 1) / (new - 1) if new > 1 else np.zeros_like(i)
    ),
    "asymmetric": lambda i, old, new, scale: i / scale,
    "half_pixel": lambda i, old, new, scale: (i + 0.5) / scale - 0.5,
    "half_pixel_symmetric": lambda i, old, new, scale: (
        old / 2 * (1 - new / (scale * old)) + (i + 0.5) / scale - 0.5
    ),
    "pytorch_half_pixel": lambda i, old, new, scale: (
        (i + 0.5) / scale - 0.5 if new > 1 else np.zeros_like(i)
    ),
}

ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
}
SIMPLE = "simple"
"""How ONNX Runtime rounds before opset 11: down where the result is larger, else up."""


@dataclass(frozen=True)
class _Sampling:
    """How new elements are computed from old ones."""

    mode: str
    places: str
    rounding: str
    cubic: float
    exclude_outside: bool
    antialias: bool = False

    def __post_init__(self) -> None:
        rounds = self.rounding in (*ROUNDINGS, SIMPLE)
        known = (self.places in PLACES, rounds, self.mode in _TAPS)
        if not all(known):
            names = (self.places, self.rounding, self.mode)
            wrong = next(name for name, is_known in zip(names, known, strict=True) if not is_known)
            raise Unsupported(f"resizing by {wrong!r}")

    def matrix(self, old: int, new: int, scale: float) -> np.ndarray:
        """Return the weights (old, new) of every old element in every new one."""
        if self.rounding == SIMPLE:
            return replace(self, rounding="ceil" if scale < 1 else "floor").matrix(old, new, scale)
        steps = np.arange(new, dtype=np.float32)
        places = PLACES[self.places](steps, old, new, np.float32(scale)).astype(np.float64)
        weights = np.zeros((old, new))
        total = np.zeros(new)
        shrink = min(scale, 1) if self.antialias else 1
        for index, share in _TAPS[self.mode](self, places, shrink):
            inside = (index >= 0) & (index < old)
            share = np.where(inside, share, 0) if self.exclude_outside else share
            total += share
            np.add.at(weights, (np.clip(index, 0, old - 1).astype(int), np.arange(new)), share)
        return (weights / total).astype(np.float32)


Taps = list[tuple[np.ndarray, np.ndarray]]
"""Indices and shares of the elements that each place is interpolated from."""


def _nearest(how: _Sampling, places: np.ndarray, shrink: float) -> Taps:
    return [(ROUNDINGS[how.rounding](places), np.ones_like(places))]


def _linear(how: _Sampling, places: np.ndarray, shrink: float) -> Taps:
    return _wide(places, shrink, 1, lambda d: 1 - d)


def _cubic(how: _Sampling, places: np.ndarray, shrink: float) -> Taps:
    """Keys' kernel: near is the piece for distances below 1, far that up to 2."""
    a = how.cubic

    def kernel(d: np.ndarray) -> np.ndarray:
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, far)

    return _wide(places, shrink, 2, kernel)


def _wide(
    places: np.ndarray, shrink: float, reach: int, kernel: Callable[[np.ndarray], np.ndarray]
) -> Taps:
    """Weigh elements by their distance, which `shrink` scales; a kernel is 0 from its reach on."""
    first, most = np.floor(places), math.ceil(reach / shrink)
    taps = []
    for step in range(1 - most, most + 1):
        d = np.abs(places - (first + step)) * shrink
        taps.append((first + step, np.where(d < reach, kernel(d), 0)))
    return taps


_TAPS: Mapping[str, Callable[[_Sampling, np.ndarray, float], Taps]] = {
    "cubic": _cubic,
    "linear": _linear,
    "nearest": _nearest,
}


@onnx_op("Resize", static=(1, 2, 3))
def resize(
    ctx: OnnxContext,
    x: Tensor,
    region: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """Resize by scales or to sizes, by the nearest element, linear or cubic interpolation.

    With antialias a kernel is as wide as the picture shrinks.
    """
    if keep_aspect_ratio_policy != "stretch":
        raise Unsupported("resizing that keeps the aspect ratio; use the policy stretch")
    if antialias and mode == "nearest":
        raise Unsupported("resizing to the nearest element with antialias; leave it out")
    exclude = bool(exclude_outside) and (mode == "cubic" or bool(antialias))
    places = coordinate_transformation_mode
    how = _Sampling(
        mode,
        places,
        nearest_mode,
        cubic=cubic_coeff_a,
        exclude_outside=exclude,
        antialias=bool(antialias),
    )
    dims = dims_of(x.rank, None, axes) or list(range(x.rank))
    return _resized(ctx, x, dims, scales=scales, sizes=sizes, how=how)


@onnx_op("Upsample", static=(1,))
def upsample(ctx: OnnxContext, x: Tensor, scales: np.ndarray, *, mode: str = "nearest") -> Tensor:
    """Resize by scales, as before opset 10."""
    how = _Sampling(mode, "asymmetric", SIMPLE, cubic=0.0, exclude_outside=False)
    return _resized(ctx, x, list(range(x.rank)), scales=scales, sizes=None, how=how)


def _resized(
    ctx: OnnxContext,
    x: Tensor,
    dims: Sequence[int],
    scales: np.ndarray | None,
    sizes: np.ndarray | None,
    how: _Sampling,
) -> Tensor:
    factors = sizes if sizes is not None and sizes.size else scales
    if factors is None or factors.size != len(dims):
        raise Unsupported("resizing without a scale or size for each dimension")
    dtype = x.dtype
    if dtype is not F32 and how.mode != "nearest":
        raise Unsupported(f"interpolating between {dtype.value}; cast it to float before")
    x = emit.cast(ctx.g, x, F32)
    for dim, number in zip(dims, np.ravel(factors).tolist(), strict=True):
        old = x.shape[dim]
        new = int(number) if factors is sizes else math.floor(old * number)
        if not 1 <= new <= 2**16 or old * new > 2**24:
            raise Unsupported(f"resizing {old} to {new}")
        scale = new / old if factors is sizes else float(number)
        if (old, scale) != (new, 1):
            x = emit_nn.along_dim(ctx.g, x, dim, how.matrix(old, new, scale))
    return emit.cast(ctx.g, x, dtype)


def _wish(rank: int, attributes: Mapping[str, Any]) -> Layout | None:
    return {4: HWIO, 5: HWDIO}.get(rank)


@onnx_op("ConvTranspose", wish=_wish)
def conv_transpose(
    ctx: OnnxContext,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Undo the shape of a convolution: the input gradient of the one with this weight."""
    rank = x.rank - 2
    if rank not in (1, 2, 3):
        raise Unsupported(f"transposed convolution of {list(x.shape)}; use up to three dims")
    ones, zeros = [1] * rank, [0] * rank
    steps, gaps, more = strides or ones, dilations or ones, output_padding or zeros
    if any(extra >= step for extra, step in zip(more, steps, strict=True)):
        raise Unsupported(f"output_padding {more} of strides {steps} or more")
    reach = [gap * (length - 1) + 1 for gap, length in zip(gaps, weight.shape[2:], strict=True)]
    full = [steps[i] * (x.shape[2 + i] - 1) + more[i] + reach[i] for i in range(rank)]
    same = [x.shape[2 + i] * steps[i] for i in range(rank)] if "SAME" in auto_pad else None
    size, sides = (output_shape or same or [])[-rank:], pads or [*zeros, *zeros]
    if size:
        sides = _cut(full, size, auto_pad)
    else:
        size = [full[i] - sides[i] - sides[rank + i] for i in range(rank)]
    # output_padding adds pixels below and right, where fewer are cropped.
    padding = tuple(side for i in range(rank) for side in (sides[i], sides[rank + i]))
    window = Window(tuple(weight.shape[2:]), tuple(steps), padding, tuple(gaps))
    return _spread(ctx, x, weight, bias=bias, window=window, groups=group, size=size)


def _spread(
    ctx: OnnxContext,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    window: Window,
    groups: int,
    size: Sequence[int],
) -> Tensor:
    """Spread lines, pictures or volumes out to a size; a line is a picture of height 1."""
    if x.rank == 5:
        return conv_transpose3d(
            ctx.g, x, weight, bias=bias, window=window, groups=groups, size=size
        )
    if x.rank == 3:
        kernel, stride, gaps = (
            (1, *part) for part in (window.kernel, window.stride, window.dilation)
        )
        flat = Window(kernel, stride, (0, 0, *window.padding), gaps)
        line, wide = (
            reshape(ctx.g, part, (*part.shape[:2], 1, part.shape[2])) for part in (x, weight)
        )
        picture = _spread(ctx, line, wide, bias=bias, window=flat, groups=groups, size=[1, *size])
        return emit.squeeze(ctx.g, picture, [2])
    y = ctx.g.conv2d_dx(
        stored(ctx.g, x, NHWC),
        stored(ctx.g, weight, HWIO),
        input_shape=(x.shape[0], *size, weight.shape[1] * groups),
        stride=window.stride,
        padding=window.padding,
        dilation=window.dilation,
        groups=groups,
    )
    return Tensor(y if bias is None else ctx.g.add(y, framework_order(ctx.g, bias)), NHWC)


def _cut(full: Sequence[int], size: Sequence[int], auto_pad: str) -> list[int]:
    """Split a picture's excess size between its two sides; return pads as in ONNX."""
    whole = [max(large - small, 0) for large, small in zip(full, size, strict=True)]
    less, more = [n // 2 for n in whole], [n - n // 2 for n in whole]
    return [*less, *more] if auto_pad == "SAME_UPPER" else [*more, *less]


BETWEEN = {
    "bilinear": Between.LINEAR,
    "linear": Between.LINEAR,
    "nearest": Between.NEAREST,
    "bicubic": Between.CUBIC,
    "cubic": Between.CUBIC,
}
"""Names of GridSample's interpolations, before opset 20 and since."""


@onnx_op("GridSample")
def grid_sample(
    ctx: OnnxContext,
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    """Read pictures or volumes at places from -1 to 1."""
    between, outside = BETWEEN[mode], Outside[padding_mode.upper()]
    if between is Between.CUBIC and x.rank != 4:
        raise Unsupported("cubic sampling of volumes; use pictures")
    return sample(ctx.g, x, grid, between=between, outside=outside, corners=bool(align_corners))
