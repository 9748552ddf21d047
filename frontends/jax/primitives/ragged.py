"""Products of groups of rows, as in mixtures of experts: `jax.lax.ragged_dot` and its gradients.

Each row is multiplied with the matrix of every group, its own or zero, as XLA does on a CPU.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.jax.primitives.registry import JaxContext, primitive
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape


@primitive("ragged_dot_general")
def ragged_dot_general(
    ctx: JaxContext,
    rows: Tensor,
    other: Tensor,
    sizes: Tensor,
    *,
    ragged_dot_dimension_numbers: Any,
    **params: Any,
) -> Tensor:
    """Multiply each group of rows with its matrix, or with the same group of other rows."""
    numbers = ragged_dot_dimension_numbers
    (inner, other_inner), batch = numbers.dot_dimension_numbers
    ragged = tuple(numbers.lhs_ragged_dimensions)
    _check((rows, other, sizes), batch, params.get("group_offset"))
    row_dim = ragged[0]
    turned = rows if row_dim == 0 else permute(rows, (1, 0))
    if tuple(numbers.rhs_group_dimensions):
        order = (*numbers.rhs_group_dimensions, *other_inner)
        free = next(dim for dim in range(3) if dim not in order)
        return _by_groups(ctx.g, turned, permute(other, (*order, free)), sizes)
    if tuple(inner) != ragged:
        raise Unsupported("rows without a dimension of groups in the other operand")
    return _of_groups(
        ctx.g, turned, other if tuple(other_inner) == (0,) else permute(other, (1, 0)), sizes
    )


def _check(operands: Sequence[Tensor], batch: Any, offset: Any) -> None:
    rows, other, sizes = operands
    if any(map(len, batch)) or rows.rank != 2 or sizes.rank != 1 or offset is not None:
        raise Unsupported("groups of rows under vmap or with group_offset; use jnp.einsum")
    if rows.dtype is not F32 or other.dtype is not F32:
        raise Unsupported("groups of rows of integers; cast them to float32")


def _by_groups(g: Builder, rows: Tensor, matrices: Tensor, sizes: Tensor) -> Tensor:
    """Return rows (m, k) times the matrix (k, n) of each row's group, of (groups, k, n)."""
    (count, inner), (groups, _, columns) = rows.shape, matrices.shape
    own = reshape(g, permute(_members(g, sizes, count), (1, 0)), (count, groups, 1))
    spread = _masked(g, own, reshape(g, rows, (count, 1, inner)))
    left = reshape(g, spread, (count, groups * inner))
    return emit.matmul(g, left, reshape(g, matrices, (groups * inner, columns)))


def _of_groups(g: Builder, rows: Tensor, others: Tensor, sizes: Tensor) -> Tensor:
    """Return, for each group, its rows (m, k), transposed, times its other rows (m, n)."""
    (count, inner), groups, columns = rows.shape, sizes.shape[0], others.shape[1]
    own = reshape(g, _members(g, sizes, count), (groups, 1, count))
    spread = _masked(g, own, reshape(g, permute(rows, (1, 0)), (1, inner, count)))
    product = emit.matmul(g, reshape(g, spread, (groups * inner, count)), others)
    return reshape(g, product, (groups, inner, columns))


def _members(g: Builder, sizes: Tensor, count: int) -> Tensor:
    """Return which rows are in which group, (groups, count); groups follow one another."""
    ends = reshape(g, plain(g.cumsum(framework_order(g, sizes), axis=0)), (sizes.shape[0], 1))
    numbers = np.arange(count, dtype=sizes.dtype.numpy).reshape(1, count)
    places = emit.broadcast(g, plain(g.constant(numbers)), (sizes.shape[0], count))
    starts = emit.arithmetic(g, "sub", ends, reshape(g, sizes, ends.shape))
    before_end = emit.arithmetic(g, "lt", places, ends)
    return emit.arithmetic(g, "logical_and", before_end, emit.arithmetic(g, "ge", places, starts))


def _masked(g: Builder, own: Tensor, rows: Tensor) -> Tensor:
    """Repeat rows for each group, with zeros in place of other groups' rows."""
    shape = tuple(map(max, own.shape, rows.shape))
    wide = emit.broadcast(g, rows, shape)
    return emit.elementwise(g, "where", emit.broadcast(g, own, shape), wide, emit.scalar(g, 0, F32))
