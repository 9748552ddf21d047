"""TensorFlow operators that pictures are augmented by: projections, and colors."""

from collections.abc import Sequence

import numpy as np

from pockengine.compiler.ir import I32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import activation
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.tensorflow.ops.registry import TfContext, integers, tf_op


@tf_op("ImageProjectiveTransformV3", "ImageProjectiveTransformV2", static=(2,))
def projective_transform(
    ctx: TfContext,
    x: Tensor,
    transforms: Tensor,
    sizes: np.ndarray,
    fill: Tensor | None = None,
    *,
    interpolation: str,
    fill_mode: str = "CONSTANT",
) -> Tensor:
    """Sample the old picture, NHWC, at the projection of each new pixel.

    Row (a0 a1 a2 b0 b1 b2 c0 c1) takes (x, y) to ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k),
    k being c0 x + c1 y + 1.
    """
    g, (height, width) = ctx.g, integers(sizes)
    _check_fixed(g, x, transforms)
    filling = emit.scalar(g, 0.0, x.dtype) if fill is None else fill
    rows, columns = np.divmod(np.arange(height * width), width)
    places = [plain(g.constant(part.astype(np.float32))) for part in (columns, rows)]
    terms = [emit.slice_dim(g, transforms, 1, start=at, stop=at + 1) for at in range(8)]

    def line(a: Tensor, b: Tensor, c: Tensor | float) -> Tensor:
        both = (
            emit.arithmetic(g, "mul", part, place)
            for part, place in zip((a, b), places, strict=True)
        )
        return emit.arithmetic(g, "add", emit.arithmetic(g, "add", *both), c)

    below = line(terms[6], terms[7], 1.0)
    across, down = (
        _mapped(g, emit.arithmetic(g, "div", line(*terms[at : at + 3]), below), size, fill_mode)
        for at, size in ((0, x.shape[2]), (3, x.shape[1]))
    )
    read = _Reader(g, x, filling)
    y = read.nearest(across, down) if interpolation == "NEAREST" else read.bilinear(across, down)
    undefined = reshape(g, emit.arithmetic(g, "eq", below, 0.0), (*below.shape, 1))
    y = emit.choose(g, undefined, filling, y)
    return reshape(g, y, (x.shape[0], height, width, x.shape[3]))


def _check_fixed(g: Builder, x: Tensor, transforms: Tensor) -> None:
    """Reject resizes for which TensorFlow has no gradient, or a different one."""
    if emit.trains(g, transforms):
        raise Unsupported("a projection that is trained, to which TensorFlow gives no gradient")
    if emit.trains(g, x):
        raise Unsupported(
            "a projection of what is trained, whose gradient in TensorFlow is that of another "
            "projection; project the data before the first layer"
        )


def _mapped(g: Builder, place: Tensor, size: int, fill_mode: str) -> Tensor:
    """Map coordinates into the picture by the mode; "CONSTANT" leaves them."""
    if fill_mode == "CONSTANT":
        return place
    if fill_mode == "REFLECT":
        turned = emit.arithmetic(g, "div", place, 2.0 * size)
        fraction = emit.arithmetic(g, "sub", turned, emit.unary("floor")(g, turned))
        along = emit.arithmetic(g, "mul", fraction, 2.0 * size)
        back = emit.arithmetic(g, "sub", 2.0 * size - 1, along)
        inside = emit.arithmetic(g, "lt", along, float(size))
        place = emit.choose(g, inside, along, back)
    elif fill_mode != "NEAREST":
        raise Unsupported(f"the fill mode {fill_mode}; use reflect, constant or nearest")
    return activation.clip(g, "clamp", place, low=0.0, high=float(size - 1))


class _Reader:
    """Reads pixels of (N, H, W, C) at coordinates of (N or 1, P); those outside are filled."""

    def __init__(self, g: Builder, x: Tensor, filling: Tensor) -> None:
        self._g, self._filling = g, filling
        self._batch, self._height, self._width, self._channels = x.shape
        area = self._height * self._width
        self._lines = framework_order(g, reshape(g, x, (self._batch, area, self._channels)))

    def _at(self, across: Tensor, down: Tensor) -> Tensor:
        """Read at whole coordinates: (N, P, C)."""
        g, inside = self._g, None
        index = emit.scalar(g, 0, I32)
        for place, size in ((down, self._height), (across, self._width)):
            low = emit.arithmetic(g, "ge", place, 0.0)
            here = emit.arithmetic(g, "logical_and", low, emit.arithmetic(g, "lt", place, size))
            inside = here if inside is None else emit.arithmetic(g, "logical_and", inside, here)
            clamped = activation.clip(g, "clamp", place, low=0.0, high=float(size - 1))
            whole = emit.cast(g, clamped, I32)
            index = emit.arithmetic(g, "add", emit.arithmetic(g, "mul", index, size), whole)
        assert inside is not None  # there are two coordinates
        count = index.shape[1]
        wide = emit.broadcast(
            g, reshape(g, index, (*index.shape, 1)), (self._batch, count, self._channels)
        )
        taken = plain(g.take_along(self._lines, framework_order(g, wide), axis=1))
        return emit.choose(g, reshape(g, inside, (*inside.shape, 1)), taken, self._filling)

    def nearest(self, across: Tensor, down: Tensor) -> Tensor:
        """Read the nearest pixels; halves are rounded away from zero."""
        return self._at(*(_rounded(self._g, place) for place in (across, down)))

    def bilinear(self, across: Tensor, down: Tensor) -> Tensor:
        """Read the four pixels around, weighted by how near they are."""
        g = self._g
        left, top = (emit.unary("floor")(g, place) for place in (across, down))
        right, bottom = (emit.arithmetic(g, "add", place, 1.0) for place in (left, top))

        def mixed(first: Tensor, second: Tensor, place: Tensor, start: Tensor) -> Tensor:
            share = emit.arithmetic(g, "sub", place, start)
            share = reshape(g, share, (*share.shape, 1))
            complement = emit.arithmetic(g, "sub", 1.0, share)
            parts = (
                emit.arithmetic(g, "mul", complement, first),
                emit.arithmetic(g, "mul", share, second),
            )
            return emit.arithmetic(g, "add", *parts)

        above, under = (
            mixed(self._at(left, row), self._at(right, row), across, left) for row in (top, bottom)
        )
        return mixed(above, under, down, top)


def _rounded(g: Builder, x: Tensor) -> Tensor:
    up = emit.unary("floor")(g, emit.arithmetic(g, "add", x, 0.5))
    down = emit.unary("ceil")(g, emit.arithmetic(g, "sub", x, 0.5))
    return emit.choose(g, emit.arithmetic(g, "lt", x, 0.0), down, up)


def _untrained(g: Builder, x: Tensor) -> None:
    if emit.trains(g, x):
        raise Unsupported("colors of what is trained; convert the data before the first layer")


def _split(g: Builder, x: Tensor) -> list[Tensor]:
    return [emit.slice_dim(g, x, -1, start=at, stop=at + 1) for at in range(3)]


@tf_op("RGBToHSV")
def rgb_to_hsv(ctx: TfContext, x: Tensor) -> Tensor:
    """Turn red, green and blue in [0, 1] into hue, saturation and value."""
    g = ctx.g
    _untrained(g, x)
    parts = _split(g, x)
    value, least = (
        emit.reduce(g, op, x, dims=[-1], keepdims=True) for op in ("reduce_max", "reduce_min")
    )
    width = emit.arithmetic(g, "sub", value, least)
    some = emit.arithmetic(g, "gt", width, 0.0)
    safe = emit.choose(g, some, width, 1.0)
    hues = [_hue(g, parts, at, safe) for at in range(3)]
    is_top = [emit.elementwise(g, "eq", part, value) for part in parts]
    hue = emit.choose(g, is_top[0], hues[0], emit.choose(g, is_top[1], hues[1], hues[2]))
    hue = emit.choose(g, some, hue, 0.0)
    wrapped = emit.arithmetic(g, "add", hue, 1.0)
    hue = emit.choose(g, emit.arithmetic(g, "lt", hue, 0.0), wrapped, hue)
    bright = emit.arithmetic(g, "gt", value, 0.0)
    share = emit.arithmetic(g, "div", width, emit.choose(g, bright, value, 1.0))
    return emit.concat(g, [hue, emit.choose(g, bright, share, 0.0), value], -1)


def _hue(g: Builder, parts: Sequence[Tensor], top: int, width: Tensor) -> Tensor:
    """Return the hue where this part is the largest."""
    apart = emit.arithmetic(g, "sub", parts[(top + 1) % 3], parts[(top + 2) % 3])
    turn = emit.arithmetic(g, "div", apart, emit.arithmetic(g, "mul", width, 6.0))
    return emit.arithmetic(g, "add", turn, top / 3)


@tf_op("HSVToRGB")
def hsv_to_rgb(ctx: TfContext, x: Tensor) -> Tensor:
    """Turn hue, saturation and value into red, green and blue."""
    g = ctx.g
    _untrained(g, x)
    hue, share, value = _split(g, x)
    turn = emit.arithmetic(g, "mul", hue, 6.0)
    parts = []
    for center, sign, start in ((3.0, 1.0, -1.0), (2.0, -1.0, 2.0), (4.0, -1.0, 2.0)):
        far = emit.unary("abs")(g, emit.arithmetic(g, "sub", turn, center))
        ramp = emit.arithmetic(g, "add", emit.weighted(g, far, sign), start)
        full = activation.clip(g, "clamp", ramp, low=0.0, high=1.0)
        lack = emit.arithmetic(g, "mul", share, emit.arithmetic(g, "sub", 1.0, full))
        parts.append(emit.arithmetic(g, "mul", value, emit.arithmetic(g, "sub", 1.0, lack)))
    return emit.concat(g, parts, -1)
