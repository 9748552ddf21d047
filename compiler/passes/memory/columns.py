"""Columns of a product's frozen weight: where a stored weight can be cut before it is decoded."""

from collections.abc import Iterator, Set

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ops.shape import slice_axis

FEWEST = 256
"""Minimum columns of a block; narrower products are slow."""

MULTIPLE = 64
"""Blocks are a multiple of this wide, as tiles of products and blocks of codes are."""


def trained_values(graph: Graph, written: Set[str]) -> set[Value]:
    """Return the parameters that train here, or that another entry updates."""
    return {
        param.value for name, param in graph.params.items() if param.trainable or name in written
    }


def column_axis(product: Node) -> int:
    """Return the axis of the weight along which columns of the result lie."""
    return 0 if product.attrs["transpose_b"] else 1


def decoding(weight: Value) -> Node | None:
    """Return the node that decodes a stored weight, or None for one that is stored as f32."""
    node = weight.node
    stored = node is not None and any(not value.dtype.computed for value in node.operands)
    return node if stored else None


def splits(product: Node, trained: Set[Value]) -> bool:
    """Whether the weight of a product is a frozen matrix that can be cut by columns."""
    if product.op != "matmul" or product.attrs["transpose_a"]:
        return False
    weight = product.operands[1]
    if len(weight.shape) != 2:
        return False
    node = decoding(weight)
    if node is None:
        return weight.node is None and weight not in trained
    along = node.attrs.get("axis") == column_axis(product)
    return not along and all(value.node is None for value in node.operands)


def part(g: Builder, product: Node, block: range) -> Value:
    """Return the product with a block of its weight's columns."""
    x, weight = product.operands
    axis, node = column_axis(product), decoding(weight)
    if node is None:
        cut = slice_axis(g, weight, axis, block)
    else:
        operands = (slice_axis(g, value, axis, block) for value in node.operands)
        cut = g.emit(node.op, *operands, **node.attrs).result
    return g.emit("matmul", x, cut, **product.attrs).result


def picked(g: Builder, product: Node, index: Value) -> Value:
    """Return the columns of the weight at `index` (n,), as rows (n, depth)."""
    weight, axis = product.operands[1], column_axis(product)
    node = decoding(weight)
    if node is None:
        rows = g.take(weight, index, axis=axis)
    else:
        operands = (g.take(value, index, axis=axis) for value in node.operands)
        rows = g.emit(node.op, *operands, **node.attrs).result
    return rows if axis == 0 else g.transpose(rows, perm=(1, 0))


def even_blocks(columns: int, most: int) -> Iterator[range]:
    """Return blocks of about equal size, of at most `most` columns and at least FEWEST."""
    count = -(-columns // max(FEWEST, most))
    size = -(-columns // count // MULTIPLE) * MULTIPLE
    for begin in range(0, columns, size):
        yield range(begin, min(begin + size, columns))
