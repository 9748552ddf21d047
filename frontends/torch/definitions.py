"""Our definitions of operators without a rule: functions of tensors, traced at each use.

They take precedence over PyTorch's own (`decompose.py`), take the same arguments, and are
differentiated through their parts, unless stated otherwise.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pockengine.frontends.torch.ties import share_of_tie

aten = torch.ops.aten
Definition = Callable[..., Any]

DEFINITIONS: dict[Any, Definition] = {}

FAR, FRACTION = 4.0, 24
"""Above FAR the continued fraction of erfc has all digits of f32 after this many terms."""

TERMS, SQUARINGS = 10, 10
"""Of a matrix' exponential: terms of the series, exact in f32 for norms up to 1, and doublings."""


def define(*targets: Any) -> Callable[[Definition], Definition]:
    """Take a function as the definition of these operators."""

    def register(definition: Definition) -> Definition:
        DEFINITIONS.update(dict.fromkeys(targets, definition))
        return definition

    return register


@define(aten.matrix_exp.default, aten.linalg_matrix_exp.default)
def matrix_exp(x: torch.Tensor) -> torch.Tensor:
    """Sum the series for x / 2ⁿ, of a norm up to 1, and square it n times; n is each matrix' own.

    Norms above 2¹⁰ are squared no further.
    """
    size = x.detach().abs().sum(-2).amax(-1)[..., None, None]
    far = [size > 2.0**times for times in range(SQUARINGS)]
    share = torch.ones_like(size)
    for more in far:
        share = torch.where(more, share * 0.5, share)
    unit, a = torch.eye(x.shape[-1]), x * share
    y = unit + a / TERMS
    for term in range(TERMS - 1, 0, -1):
        y = unit + a @ y / term
    for more in far:
        y = torch.where(more, y @ y, y)
    return y


@define(aten.linalg_householder_product.default)
def householder_product(a: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    """Return the first columns of the product of reflections 1 - tau v vᵀ, v = (.., 0, 1, a)."""
    return _reflected(a, tau, torch.eye(*a.shape[-2:]), transpose=False)


@define(aten.ormqr.default)
def ormqr(
    a: torch.Tensor,
    tau: torch.Tensor,
    other: torch.Tensor,
    left: bool = True,
    transpose: bool = False,
) -> torch.Tensor:
    """Multiply by the product of reflections, or its transpose."""
    if left:
        return _reflected(a, tau, other, transpose=transpose)
    return _reflected(a, tau, other.mT, transpose=not transpose).mT


def _reflected(
    a: torch.Tensor, tau: torch.Tensor, x: torch.Tensor, *, transpose: bool
) -> torch.Tensor:
    """Apply all reflections at once: 1 - v t vᵀ with t = (1 + d s)⁻¹ d.

    d holds tau on its diagonal, s is the part above the diagonal of vᵀ v.
    """
    count = tau.shape[-1]
    v = a[..., :count].tril(-1) + torch.eye(a.shape[-2], count)
    above = torch.eye(count) + tau[..., None] * (v.mT @ v).triu(1)
    t = torch.linalg.solve_triangular(above, torch.diag_embed(tau), upper=True)
    return x - v @ ((t.mT if transpose else t) @ (v.mT @ x))


@define(aten.lu_unpack.default)
def lu_unpack(
    packed: torch.Tensor,
    pivots: torch.Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return p, l and u, from the exchanges of rows in sequence."""
    rows, columns = packed.shape[-2:]
    least = min(rows, columns)
    low = upper = order = packed.new_empty(0)
    if unpack_data:
        low = packed[..., :least].tril(-1) + torch.eye(rows, least)
        upper = packed[..., :least, :].triu()
    if unpack_pivots:
        numbers = torch.arange(rows)
        order = numbers.float().expand(*pivots.shape[:-1], rows)
        for row in range(least):
            other = pivots[..., row : row + 1].long() - 1
            here, there = order[..., row : row + 1], order.gather(-1, other)
            order = torch.where(numbers == row, there, torch.where(numbers == other, here, order))
        order = (order[..., None, :] == numbers[:, None]).to(packed.dtype)
    return order, low, upper


@define(aten.linalg_lu.default)
def linalg_lu(
    a: torch.Tensor, *, pivot: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return p, l and u with p l u = a."""
    return lu_unpack(*torch.linalg.lu_factor(a, pivot=pivot))


@define(aten.linalg_lu_solve.default)
def linalg_lu_solve(
    packed: torch.Tensor,
    pivots: torch.Tensor,
    b: torch.Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> torch.Tensor:
    """Solve a x = b, or aᵀ x = b, or with a on the right, from a's factors."""
    if not left:
        return linalg_lu_solve(packed, pivots, b.mT, adjoint=not adjoint).mT
    order = lu_unpack(packed, pivots, unpack_data=False)[0]
    solve = torch.linalg.solve_triangular
    if adjoint:
        half = solve(packed.triu().mT, b, upper=False)
        return order @ solve(packed.mT, half, upper=True, unitriangular=True)
    half = solve(packed, order.mT @ b, upper=False, unitriangular=True)
    return solve(packed, half, upper=True)


@define(aten.lu_solve.default)
def lu_solve(b: torch.Tensor, packed: torch.Tensor, pivots: torch.Tensor) -> torch.Tensor:
    """Solve a x = b from a's factors."""
    return linalg_lu_solve(packed, pivots, b)


@define(aten.linalg_pinv.atol_rtol_tensor)
def pinv(
    a: torch.Tensor,
    *,
    atol: torch.Tensor | None = None,
    rtol: torch.Tensor | None = None,
    hermitian: bool = False,
) -> torch.Tensor:
    """Invert the singular values above a limit.

    The gradient is that of a constant rank, which equal singular values do not disturb.
    """
    matrix = a
    if hermitian:
        a = a.tril() + a.tril(-1).mT
    left, values, right = torch.linalg.svd(a, full_matrices=False)
    most = values.amax(-1, keepdim=True)
    if rtol is None:
        share = max(a.shape[-2:]) * torch.finfo(a.dtype).eps
        rtol = torch.tensor(0.0 if atol is not None else share)
    limit = rtol.to(a.dtype)[..., None] * most
    if atol is not None:
        limit = torch.maximum(limit, atol.to(a.dtype)[..., None])
    large = values > limit
    inverted = torch.where(large, 1 / torch.where(large, values, 1.0), 0.0)
    p = right.mT @ (inverted[..., None] * left.mT)
    dp = torch.ops.pockengine.cotangent(p)
    rows, columns = torch.eye(a.shape[-2]), torch.eye(a.shape[-1])
    da = (rows - matrix @ p) @ dp.mT @ (p @ p.mT) + (p.mT @ p) @ dp.mT @ (columns - p @ matrix)
    return torch.ops.pockengine.custom_gradient(p, dp, [matrix], [da - p.mT @ dp @ p.mT])


@define(aten.special_erfcx.default)
def erfcx(x: torch.Tensor) -> torch.Tensor:
    """Return exp(x²) erfc(x); above 4 by a continued fraction, as erfc runs out of digits."""
    far = x > FAR
    near = torch.where(far, 0.0, x)
    beyond = torch.where(far, x, FAR)
    fraction = beyond
    for term in range(FRACTION, 0, -1):
        fraction = beyond + term / 2 / fraction
    coarse = (near.detach() * 16).round() / 16  # its square is exact, and the rest small
    square = torch.exp(coarse * coarse) * torch.exp((near - coarse) * (near + coarse))
    inside = square * torch.erfc(near)
    return torch.where(far, 1 / (math.sqrt(math.pi) * fraction), inside)


@define(aten.special_log_ndtr.default)
def log_ndtr(x: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of the normal distribution up to x."""
    low = x < -1
    left, right = (torch.where(mask, x, 0.0) * math.sqrt(0.5) for mask in (low, ~low))
    far = torch.log(erfcx(-left) / 2) - left * left
    return torch.where(low, far, torch.log1p(-torch.erfc(right) / 2))


@define(aten.special_ndtri.default)
def ndtri(x: torch.Tensor) -> torch.Tensor:
    """Return the quantile x of the normal distribution."""
    return math.sqrt(2) * torch.erfinv(2 * x - 1)


@define(aten.mode.default)
def mode(
    x: torch.Tensor, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the most frequent element of each line, of equally frequent ones the least."""
    if not x.dim():
        return x, torch.zeros((), dtype=torch.int64)
    lines = x.movedim(dim, -1)
    hits = (lines[..., None] == lines[..., None, :]).sum(-1)
    often = hits == hits.amax(-1, keepdim=True)
    least = torch.where(often, lines.detach(), math.inf).amin(-1, keepdim=True)
    same = lines.detach() == least
    places = torch.where(same, torch.arange(lines.shape[-1]), -1).amax(-1, keepdim=True)
    values = lines.gather(-1, places)
    if keepdim:
        return values.movedim(-1, dim), places.movedim(-1, dim)
    return values.squeeze(-1), places.squeeze(-1)


@define(aten.masked_scatter.default)
def masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Write the first elements of source, in sequence, where the mask is true."""
    x, mask = torch.broadcast_tensors(x, mask)
    order = mask.flatten().float().cumsum(0) - 1  # exact up to 2²⁴ elements
    places = order.clamp(0, source.numel() - 1).long()
    return torch.where(mask, source.flatten()[places].reshape(x.shape), x)


@define(aten.diagonal_scatter.default)
def diagonal_scatter(
    x: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    """Write source to a diagonal."""
    y = x.clone()
    y.diagonal(offset, dim1, dim2).copy_(source)
    return y


@define(aten.fractional_max_pool2d.default, aten.fractional_max_pool3d.default)
def fractional_max_pool(
    x: torch.Tensor, kernel: Sequence[int], output: Sequence[int], samples: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest of windows that random numbers place, one for each dimension, and where.

    The numbers are (N, C, dimensions); for pictures the first one places columns.
    """
    rank = len(kernel)
    sizes, batch = x.shape[-rank:], x.shape[: x.dim() - rank]
    samples = samples.reshape(*batch, rank)
    order = range(rank) if rank == 3 else (1, 0)
    places = torch.zeros((), dtype=torch.int64)
    for axis, number in enumerate(order):
        starts = _starts(samples[..., number, None], sizes[axis], output[axis], kernel[axis])
        taps = starts[..., None] + torch.arange(kernel[axis])
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = output[axis], kernel[axis]
        places = places + taps.reshape(*batch, *shape) * math.prod(sizes[axis + 1 :])
    places = places.flatten(len(batch) + rank).flatten(len(batch), -2)
    values = x.flatten(-rank).gather(-1, places.flatten(-2)).reshape(places.shape)
    best, tap = values.max(-1)
    chosen = places.gather(-1, tap[..., None])[..., 0]
    return best.reshape(*batch, *output), chosen.reshape(*batch, *output)


def _starts(sample: torch.Tensor, size: int, count: int, kernel: int) -> torch.Tensor:
    """Return where the windows of one dimension begin; the last one ends at the border."""
    last = size - kernel
    if count == 1:
        return torch.full_like(sample, last, dtype=torch.int64)
    step = last / (count - 1)
    first = (torch.arange(count - 1) + sample) * step
    starts = first.long() - (sample * step).long()
    return torch.cat([starts, torch.full_like(sample, last, dtype=torch.int64)], -1)


@define(aten.clamp.Tensor)
def clamp(
    x: torch.Tensor, min: torch.Tensor | None = None, max: torch.Tensor | None = None
) -> torch.Tensor:
    """Limit to bounds that are tensors; the gradient of a tie is shared where PyTorch shares it."""
    if share_of_tie("tensor") == 1:
        return _limited(x, min, max)
    if min is None or max is None:
        return torch.minimum(x, max) if min is None else torch.maximum(x, min)
    shared = torch.minimum(torch.maximum(x, min), max)
    return torch.where((min < max) & (x == x), shared, _limited(x, min, max))


def _limited(x: torch.Tensor, low: torch.Tensor | None, high: torch.Tensor | None) -> torch.Tensor:
    """Limit to bounds; the gradient of a tie is that of x."""
    if low is not None:
        x = torch.where((x < low) | (low != low), low, x)
    return x if high is None else torch.where((x > high) | (high != high), high, x)
