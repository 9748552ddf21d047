"""Norms over the rows of one sample, in our ops: layer, RMS, group and instance norm."""

import math

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape


def layer_norm(
    g: Builder, x: Tensor, dims: int, scale: Tensor | None, shift: Tensor | None, eps: float
) -> Tensor:
    """Normalize the last `dims` dimensions to mean 0 and variance 1; scale and shift them."""
    y = _normalized_rows(g, "layer_norm", x, row=math.prod(x.shape[x.rank - dims :]), eps=eps)
    return _scaled(g, y, scale, shift)


def rms_norm(g: Builder, x: Tensor, dims: int, scale: Tensor | None, eps: float) -> Tensor:
    """Normalize the last `dims` dimensions to a mean square of 1; scale them."""
    y = _normalized_rows(g, "rms_norm", x, row=math.prod(x.shape[x.rank - dims :]), eps=eps)
    return _scaled(g, y, scale, None)


def group_norm(
    g: Builder, x: Tensor, groups: int, scale: Tensor | None, shift: Tensor | None, eps: float
) -> Tensor:
    """Normalize each group of channels of (N, C, ...); scale and shift each channel."""
    y = _normalized_rows(g, "layer_norm", x, row=math.prod(x.shape[1:]) // groups, eps=eps)
    shape = (x.shape[1],) + (1,) * (x.rank - 2)
    factors = [None if part is None else reshape(g, part, shape) for part in (scale, shift)]
    return _scaled(g, y, *factors)


def _normalized_rows(g: Builder, op: str, x: Tensor, row: int, eps: float) -> Tensor:
    rows = framework_order(g, reshape(g, x, (x.size // row, row)))
    return reshape(g, plain(g.emit(op, rows, eps=eps).results[0]), x.shape)


def _scaled(g: Builder, y: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    if scale is not None:
        y = emit.arithmetic(g, "mul", y, scale)
    return y if shift is None else emit.arithmetic(g, "add", y, shift)
