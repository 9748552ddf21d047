"""Convolution with any order of dimensions; its gradients are the same primitive.

Pictures are (N, C, H, W) here and kernels (O, I, KH, KW); only layouts change, no data moves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit import volume as emit_volume
from pockengine.frontends.emit.nn import Unsupported, Window
from pockengine.frontends.jax.primitives.registry import JaxContext, primitive
from pockengine.frontends.jax.primitives.shape import spread
from pockengine.frontends.layout import HWIO, NHWC, Tensor, permute, reshape, stored


@dataclass(frozen=True)
class _Sweep:
    """How a convolution's kernel moves; `spread` is the spacing of the picture's own pixels."""

    window: Window
    spread: tuple[int, int]
    groups: int
    batch_groups: int
    output: tuple[int, int]
    forward: bool


@primitive("conv_general_dilated")
def conv_general_dilated(
    ctx: JaxContext, x: Tensor, w: Tensor, *, dimension_numbers: Any, **params: Any
) -> Tensor:
    """Convolve; with a dilated picture it is the gradient of a convolution with respect to its
    picture.

    With a kernel larger than the result, or groups of the batch, it is the gradient with respect to
    a weight.
    """
    numbers = dimension_numbers
    if x.rank == 5:
        return _volume(ctx, x, w, numbers=numbers, params=params)
    if x.rank not in (3, 4):
        raise Unsupported(f"a convolution over {x.rank - 2} dimensions; use one, two or three")
    picture = _picture(ctx.g, permute(x, numbers.lhs_spec))
    kernel = _picture(ctx.g, permute(w, numbers.rhs_spec))
    shape = tuple(ctx.shape[dim] for dim in numbers.out_spec)
    y = _convolve(ctx.g, picture, kernel, _sweep(ctx.forward, kernel, shape, params))
    y = reshape(ctx.g, y, shape)
    return permute(y, [numbers.out_spec.index(dim) for dim in range(y.rank)])


def _volume(ctx: JaxContext, x: Tensor, w: Tensor, numbers: Any, params: dict[str, Any]) -> Tensor:
    """Convolve volumes; a spread one gets its zeros first."""
    g, volume, kernel = ctx.g, permute(x, numbers.lhs_spec), permute(w, numbers.rhs_spec)
    if params["batch_group_count"] > 1:
        raise Unsupported("a convolution of volumes with groups of the batch")
    gaps = tuple(int(size) - 1 for size in params["lhs_dilation"])
    if any(gaps):
        volume = spread(g, volume, (0, 0, *gaps), 0.0)
    low, high = ((0, 0, *(int(pair[side]) for pair in params["padding"])) for side in range(2))
    volume = emit.pad(g, volume, low, high, value=0.0)
    steps, taps = (tuple(map(int, params[key])) for key in ("window_strides", "rhs_dilation"))
    window = Window(kernel.shape[2:], steps, (0,) * 6, taps)
    y = emit_volume.conv3d(
        g, volume, kernel, bias=None, window=window, groups=params["feature_group_count"]
    )
    return permute(y, [numbers.out_spec.index(dim) for dim in range(y.rank)])


def _picture(g: Builder, x: Tensor) -> Tensor:
    """Convert a line to a picture of height 1."""
    return x if x.rank == 4 else reshape(g, x, (*x.shape[:2], 1, x.shape[2]))


def _sweep(forward: bool, kernel: Tensor, shape: Sequence[int], params: dict[str, Any]) -> _Sweep:
    """Read the primitive's parameters; `shape` is the result's, channels second."""

    def pair(sizes: Sequence[int]) -> tuple[int, int]:
        first, *others = (int(size) for size in sizes)
        return (first, others[0]) if others else (1, first)

    sides = [(0, 0)] * (4 - len(shape)) + list(params["padding"])
    top, bottom, left, right = (int(size) for side in sides for size in side)
    window = Window(
        (kernel.shape[2], kernel.shape[3]),
        pair(params["window_strides"]),
        (top, bottom, left, right),
        pair(params["rhs_dilation"]),
    )
    return _Sweep(
        window,
        spread=pair(params["lhs_dilation"]),
        groups=params["feature_group_count"],
        batch_groups=params["batch_group_count"],
        output=pair(shape[2:]),
        forward=forward,
    )


def _convolve(g: Builder, x: Tensor, w: Tensor, sweep: _Sweep) -> Tensor:
    """Convolve (N, C, H, W) by (O, I, KH, KW)."""
    if sweep.spread != (1, 1) and sweep.window.stride != (1, 1):
        gaps = (0, 0, sweep.spread[0] - 1, sweep.spread[1] - 1)
        x, sweep = spread(g, x, gaps, 0.0), replace(sweep, spread=(1, 1))
    if sweep.spread != (1, 1) or (_is_reversed(w) and sweep.window.stride == (1, 1)):
        return _transposed(g, x, w, sweep)
    larger = math.prod(sweep.output) < math.prod(sweep.window.kernel)
    if sweep.batch_groups > 1 or (larger and sweep.groups == 1 and not sweep.forward):
        return _weight_gradient(g, x, w, sweep)
    x, window = _cut(g, x, sweep.window)
    return emit_nn.conv2d(g, x, w, bias=None, window=window, groups=sweep.groups)


def _transposed(g: Builder, x: Tensor, w: Tensor, sweep: _Sweep) -> Tensor:
    """Convolve a picture with zeros between its pixels: the transpose of a strided convolution.

    That one's weight has the taps in reverse order and reads what this one writes. Where it does
    not reach there is no gradient: padding adds those pixels afterwards.
    """
    window, groups = sweep.window, sweep.groups
    reach = [gap * (size - 1) for gap, size in zip(window.dilation, window.kernel, strict=True)]
    sides = [reach[i // 2] - side for i, side in enumerate(window.padding)]
    extra = [max(-side, 0) for side in sides]
    height = sweep.output[0] - extra[0] - extra[1]
    width = sweep.output[1] - extra[2] - extra[3]
    y = g.conv2d_dx(
        stored(g, x, NHWC),
        stored(g, _opposite(g, _reversed(g, w), groups), HWIO),
        stride=sweep.spread,
        padding=tuple(max(side, 0) for side in sides),
        dilation=window.dilation,
        groups=groups,
        input_shape=(x.shape[0], height, width, w.shape[0]),
    )
    low, high = (0, 0, extra[0], extra[2]), (0, 0, extra[1], extra[3])
    return emit.pad(g, Tensor(y, NHWC), low, high, value=0.0)


def _is_reversed(w: Tensor) -> bool:
    node = w.value.node
    return node is not None and node.op == "reverse"


def _reversed(g: Builder, w: Tensor) -> Tensor:
    """Reverse the taps of (O, I, KH, KW); reversing twice reads the original."""
    axes = {w.axis(2), w.axis(3)}
    value, node = w.value, w.value.node
    if node is not None and node.op == "reverse":
        value, axes = node.operands[0], axes ^ set(node.attrs["axes"])
    moving = tuple(sorted(axis for axis in axes if value.shape[axis] > 1))
    return Tensor(g.reverse(value, axes=moving) if moving else value, w.layout)


def _opposite(g: Builder, w: Tensor, groups: int) -> Tensor:
    """Make (O, I / groups, ...) to (I, O / groups, ...), as the other direction reads it."""
    if groups == 1:
        return permute(w, (1, 0, 2, 3))
    outputs, inputs, *taps = w.shape
    parts = reshape(g, w, (groups, outputs // groups, inputs, *taps))
    swapped = permute(parts, (0, 2, 1, 3, 4))
    return reshape(g, swapped, (groups * inputs, outputs // groups, *taps))


def _weight_gradient(g: Builder, x: Tensor, w: Tensor, sweep: _Sweep) -> Tensor:
    """Convolve where the batch is a sum and the kernel a picture: the gradient of a weight.

    out[c, o, k] = sum over n and q of x[c, n, k dilation + q stride] w[o, n, q].
    """
    groups = sweep.batch_groups
    if sweep.groups > 1:
        raise Unsupported("a convolution with groups of channels and of the batch")
    picture, cotangent = permute(x, (1, 0, 2, 3)), permute(w, (1, 0, 2, 3))
    swapped = replace(
        sweep.window,
        kernel=sweep.output,
        stride=sweep.window.dilation,
        dilation=sweep.window.stride,
    )
    picture, window = _cut(g, picture, _tight(swapped, picture, sweep.window.kernel))
    value = g.conv2d_dw(
        stored(g, picture, NHWC),
        stored(g, cotangent, NHWC),
        stride=window.stride,
        padding=window.padding,
        dilation=window.dilation,
        groups=groups,
        weight_shape=(*sweep.output, x.shape[0] // groups, w.shape[0]),
    )
    return permute(Tensor(value, HWIO), (1, 0, 2, 3))  # to (N, C) of this result: (I, O)


def _tight(window: Window, x: Tensor, places: tuple[int, ...]) -> Window:
    """Cut the padding below and right to that of `places` windows of the forward direction."""
    sides = list(window.padding)
    for i in range(2):
        reach = window.dilation[i] * (window.kernel[i] - 1) + 1
        most = places[i] * window.stride[i] + reach - 1 - x.shape[2 + i] - sides[2 * i]
        sides[2 * i + 1] = min(sides[2 * i + 1], most)
    return replace(window, padding=(sides[0], sides[1], sides[2], sides[3]))


def _cut(g: Builder, x: Tensor, window: Window) -> tuple[Tensor, Window]:
    """Turn negative padding into a cut of (N, C, H, W)."""
    top, bottom, left, right = window.padding
    if min(window.padding) >= 0:
        return x, window
    low, high = (0, 0, min(top, 0), min(left, 0)), (0, 0, min(bottom, 0), min(right, 0))
    sides = (max(top, 0), max(bottom, 0), max(left, 0), max(right, 0))
    return emit.pad(g, x, low, high, value=0.0), replace(window, padding=sides)
