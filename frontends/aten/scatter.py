"""ATen operators that add or read at indices in a tensor."""

from collections.abc import Sequence

from pockengine.frontends import emit
from pockengine.frontends.aten.registry import Context, aten
from pockengine.frontends.emit_nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape


@aten("scatter_add.default")
def scatter_add(ctx: Context, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add each element of src that has an index to x at that place of a dimension."""
    if not x.rank:
        line = [reshape(ctx.g, tensor, (1,)) for tensor in (x, index, src)]
        return reshape(ctx.g, scatter_add(ctx, line[0], 0, *line[1:]), ())
    src = emit.slice_(ctx.g, src, (0,) * x.rank, index.shape, (1,) * x.rank)
    added = ctx.g.take_along_dx(
        framework_order(ctx.g, src),
        framework_order(ctx.g, index),
        axis=dim % x.rank,
        input_shape=x.shape,
    )
    return emit.arithmetic(ctx.g, "add", x, plain(added))


@aten("index.Tensor", "_unsafe_index.Tensor")
def index_tensor(ctx: Context, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[..., index, ...] with one tensor of indices; negative ones count from the end."""
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype.value not in ("i32", "i64"):
        raise Unsupported("indexing by several tensors or by a mask; use gather or where")
    ((dim, index),) = given
    from_end = emit.arithmetic(ctx.g, "add", index, x.shape[dim])
    negative = emit.arithmetic(ctx.g, "lt", index, 0)
    index = emit.elementwise(ctx.g, "where", negative, from_end, index)
    values = framework_order(ctx.g, x), framework_order(ctx.g, index)
    return plain(ctx.g.take(*values, axis=dim))
