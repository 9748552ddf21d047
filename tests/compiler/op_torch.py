"""Every op in PyTorch, on tensors in our layouts: `TORCH[op](*operands, **attrs)`."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from pockengine.compiler.ops import lookup
from pockengine.compiler.ops.eigen import TIE


def _torch_binary_cross_entropy(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    x, t = torch.broadcast_tensors(x, t)
    return F.binary_cross_entropy(x, t, reduction="none")


class _TorchZeta(torch.autograd.Function):
    """Hurwitz's zeta with its gradient, which PyTorch lacks."""

    @staticmethod
    def forward(ctx: Any, s: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(s, q)
        return torch.special.zeta(s, q)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[None, torch.Tensor]:
        s, q = ctx.saved_tensors
        return None, (-dy * s * torch.special.zeta(s + 1, q)).sum_to_size(q.shape)


def _torch_igamma_da(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The derivative of gammainc in a, which PyTorch lacks: central differences in doubles."""
    step, wide = 1e-3 * a.detach().double(), x.double()

    def difference(steps: int) -> torch.Tensor:
        shift = steps * step
        center = a.detach().double()
        above, below = (torch.special.gammainc(center + s, wide) for s in (shift, -shift))
        return above - below

    return ((8 * difference(1) - difference(2)) / (12 * step)).to(x.dtype)


def _torch_gamma_share(
    share: Callable[..., torch.Tensor], sign: float
) -> Callable[..., torch.Tensor]:
    """Add the gradient in a to PyTorch's function, which has only the one in x."""

    def torch_function(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        slope = sign * _torch_igamma_da(a, x).detach()
        return share(a.detach(), x) + (a - a.detach()) * slope

    return torch_function


UNARY = {
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "expm1": torch.expm1,
    "log1p": torch.log1p,
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "i0": torch.i0,
    "i1": torch.special.i1,
    "i0e": torch.special.i0e,
    "i1e": torch.special.i1e,
    "erf_inv": torch.erfinv,
}
STEPS = {
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "igamma": _torch_gamma_share(torch.special.gammainc, 1.0),
    "igammac": _torch_gamma_share(torch.special.gammaincc, -1.0),
    "igamma_da": _torch_igamma_da,
    "zeta": _TorchZeta.apply,
    "binary_cross_entropy": _torch_binary_cross_entropy,
}
COMPARISONS = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}


def _nchw(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2)


def _nhwc(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1)


def _padded(x: torch.Tensor, padding: tuple[int, ...], value: float = 0.0) -> torch.Tensor:
    top, bottom, left, right = padding
    return F.pad(_nchw(x), (left, right, top, bottom), value=value)


def _torch_conv(x: torch.Tensor, w: torch.Tensor, **a: Any) -> torch.Tensor:
    # PyTorch's plain convolution refuses the gradient of weights for some strides.
    image, weight = _padded(x, a["padding"]).contiguous(), w.permute(3, 2, 0, 1).contiguous()
    y = F.conv2d(image, weight, stride=a["stride"], dilation=a["dilation"], groups=a["groups"])
    return _nhwc(y)


def _torch_max_pool(x: torch.Tensor, **a: Any) -> torch.Tensor:
    image = _padded(x, a["padding"], -math.inf)
    return _nhwc(F.max_pool2d(image, a["kernel"], a["stride"], dilation=a["dilation"]))


def _torch_avg_pool(x: torch.Tensor, **a: Any) -> torch.Tensor:
    total = F.avg_pool2d(_padded(x, a["padding"]), a["kernel"], a["stride"])
    if a["count_include_pad"]:
        return _nhwc(total)
    ones = _padded(torch.ones(1, *x.shape[1:3], 1), a["padding"])
    return _nhwc(total / F.avg_pool2d(ones, a["kernel"], a["stride"]))


def _torch_matmul(a: torch.Tensor, b: torch.Tensor, **attrs: Any) -> torch.Tensor:
    a = a.transpose(-1, -2) if attrs["transpose_a"] else a
    return a @ (b.transpose(-1, -2) if attrs["transpose_b"] else b)


def _torch_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *mask: torch.Tensor, **attrs: Any
) -> torch.Tensor:
    share = q.shape[2] // k.shape[2]
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    k, v = (part.repeat_interleave(share, 1) for part in (k, v))
    scores = q @ k.transpose(-1, -2) * attrs["scale"]
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if attrs["causal"]:
        seen = seen.tril()
    for part in mask:
        if part.dtype is torch.bool:
            seen = seen & part
        else:
            scores = scores + part.detach()
    return (F.softmax(scores.where(seen, attrs["hidden"]), -1) @ v).transpose(1, 2)


def _torch_batch_norm(
    x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float
) -> torch.Tensor:
    return _nhwc(F.batch_norm(_nchw(x), None, None, gamma, beta, training=True, eps=eps))


def _torch_pad(
    x: torch.Tensor, low: tuple[int, ...], high: tuple[int, ...], value: float
) -> torch.Tensor:
    pairs = list(zip(low, high, strict=True))[::-1]
    return F.pad(x, [size for pair in pairs for size in pair], value=value)


def _torch_slice(x: torch.Tensor, **a: Any) -> torch.Tensor:
    spans = zip(a["start"], a["stop"], a["step"], strict=True)
    return x[tuple(slice(*span) for span in spans)]


def _torch_prod(x: torch.Tensor, axes: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    for axis in reversed(axes):
        x = x.prod(axis, keepdim=keepdims)
    return x


def _torch_cumsum(x: torch.Tensor, axis: int, reverse: bool) -> torch.Tensor:
    return x.flip(axis).cumsum(axis).flip(axis) if reverse else x.cumsum(axis)


def _torch_take(x: torch.Tensor, index: torch.Tensor, axis: int) -> torch.Tensor:
    taken = x.index_select(axis, index.reshape(-1))
    return taken.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


def _torch_take_add(
    x: torch.Tensor, dy: torch.Tensor, index: torch.Tensor, axis: int
) -> torch.Tensor:
    rows = dy.reshape((*x.shape[:axis], -1, *x.shape[axis + 1 :]))
    return x.index_add(axis, index.reshape(-1), rows)


def _torch_scatter(
    dy: torch.Tensor, index: torch.Tensor, axis: int, input_shape: tuple[int, ...]
) -> torch.Tensor:
    return torch.zeros(input_shape).scatter_add(axis, index, dy)


def _torch_ctc(
    x: torch.Tensor, labels: torch.Tensor, steps: torch.Tensor, counts: torch.Tensor, blank: int
) -> torch.Tensor:
    return F.ctc_loss(F.log_softmax(x, -1), labels, steps, counts, blank, reduction="none")


def _torch_conv_transpose(dy: torch.Tensor, w: torch.Tensor, **a: Any) -> torch.Tensor:
    """Pad the transposed convolution's result to the whole input, then crop the padding."""
    y = F.conv_transpose2d(
        _nchw(dy).contiguous(),
        w.permute(3, 2, 0, 1).contiguous(),
        None,
        a["stride"],
        0,
        0,
        a["groups"],
        a["dilation"],
    )
    top, bottom, left, right = a["padding"]
    height, width = a["input_shape"][1] + top + bottom, a["input_shape"][2] + left + right
    y = F.pad(y, (0, width - y.shape[3], 0, height - y.shape[2]))
    return _nhwc(y[:, :, top : height - bottom, left : width - right])


def _torch_triangular(
    a: torch.Tensor, b: torch.Tensor, lower: bool, transpose: bool, unit: bool
) -> torch.Tensor:
    matrix, upper = (a.mT, lower) if transpose else (a, not lower)
    return torch.linalg.solve_triangular(matrix, b, upper=upper, unitriangular=unit)


def _torch_eigh(a: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(a)
    return torch.cat([values[..., None, :], vectors * _signs(vectors)], -2)


def _torch_eig(a: torch.Tensor) -> torch.Tensor:
    """Return PyTorch's eigenvalues and vectors in the oracle's order, which may differ."""
    size = a.shape[-1]
    real = a.shape[-2] == size
    values, vectors = torch.linalg.eig(a if real else torch.complex(*a.split(size, -2)))
    (oracle,) = lookup("eig").eval((a.detach().numpy(),), {})
    expected = torch.complex(*torch.from_numpy(oracle[..., :2, :].copy()).unbind(-2))
    order = (values.detach()[..., :, None] - expected[..., None, :]).abs().argmin(-2)
    values = values.gather(-1, order)
    vectors = vectors.gather(-1, order[..., None, :].expand(vectors.shape))
    lengths = vectors.abs().detach()
    first = (lengths >= TIE * lengths.amax(-2, keepdim=True)).byte().argmax(-2, keepdim=True)
    pivots = vectors.gather(-2, first)
    vectors = vectors * (pivots.conj() / pivots.abs())
    parts = [part[..., None, :] for part in (values.real, values.imag)]
    return torch.cat([*parts, vectors.real, vectors.imag], -2)


def _torch_svd(a: torch.Tensor) -> torch.Tensor:
    left, values, right = torch.linalg.svd(a, full_matrices=False)
    signs = _signs(left)
    return torch.cat([values[..., None, :], left * signs, right.mT * signs], -2)


def _torch_lu(a: torch.Tensor) -> torch.Tensor:
    packed, pivots = torch.linalg.lu_factor(a)
    order = torch.lu_unpack(packed, pivots)[0].argmax(-2)
    remaining = torch.arange(pivots.shape[-1], a.shape[-2]).expand(*pivots.shape[:-1], -1)
    exchanged = torch.cat([pivots - 1, remaining], -1)
    return torch.cat([packed, order[..., None], exchanged[..., None]], -1)


def _signs(vectors: torch.Tensor) -> torch.Tensor:
    """Return the sign of the largest element of each column."""
    return vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True)).sign().detach()


MATRICES: dict[str, Callable[..., torch.Tensor]] = {
    "cholesky": torch.linalg.cholesky,
    "triangular_solve": _torch_triangular,
    "solve": torch.linalg.solve,
    "slogdet": lambda a: torch.stack(torch.linalg.slogdet(a), -1),
    "eig": _torch_eig,
    "eigh": _torch_eigh,
    "svd": _torch_svd,
    "qr": lambda a: torch.cat(torch.linalg.qr(a), -2),
    "lu": _torch_lu,
}

TORCH: dict[str, Callable[..., torch.Tensor]] = {
    **UNARY,
    **STEPS,
    **BINARY,
    **COMPARISONS,
    **MATRICES,
    "clamp": lambda x, min, max: torch.clamp(x, min, max),
    "hardtanh": lambda x, min, max: F.hardtanh(x, min, max),
    "where": torch.where,
    "rem": torch.fmod,
    "reduce_sum": lambda x, axes, keepdims: x.sum(axes, keepdim=keepdims),
    "reduce_mean": lambda x, axes, keepdims: x.mean(axes, keepdim=keepdims),
    "reduce_max": lambda x, axes, keepdims: x.amax(axes, keepdim=keepdims),
    "reduce_min": lambda x, axes, keepdims: x.amin(axes, keepdim=keepdims),
    "reduce_prod": _torch_prod,
    "cumsum": _torch_cumsum,
    "reverse": lambda x, axes: x.flip(axes),
    "take": lambda x, index, axis: _torch_take(x, index, axis),
    "take_add": lambda x, dy, index, axis: _torch_take_add(x, dy, index, axis),
    "take_along": lambda x, index, axis: torch.gather(x, axis, index),
    "take_along_dx": _torch_scatter,
    "layer_norm": lambda x, eps: F.layer_norm(x, x.shape[-1:], eps=eps),
    "rms_norm": lambda x, eps: F.rms_norm(x, x.shape[-1:], eps=eps),
    "conv2d_dx": _torch_conv_transpose,
    "attention": _torch_attention,
    "matmul": _torch_matmul,
    "conv2d": _torch_conv,
    "max_pool2d": _torch_max_pool,
    "avg_pool2d": _torch_avg_pool,
    "batch_norm": _torch_batch_norm,
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "cross_entropy": F.cross_entropy,
    "ctc_loss": _torch_ctc,
    "reshape": lambda x, shape: x.reshape(shape),
    "transpose": lambda x, perm: x.permute(perm),
    "broadcast_to": lambda x, shape: x.broadcast_to(shape),
    "concat": lambda *parts, axis: torch.cat(parts, axis),
    "pad": _torch_pad,
    "slice": _torch_slice,
    "pick": lambda x, axis, index: x.index_select(axis, torch.tensor(index)),
}
DIFFERENTIABLE = sorted(set(TORCH) - set(COMPARISONS))
