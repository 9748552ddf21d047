"""Lazily permuted tensors: a channels-first framework on a channels-last IR.

A `Tensor` is one of our values together with the order in which the framework's dimensions are
stored in it: dimension `layout[i]` of the framework's tensor is dimension i of the IR tensor.
Permuting is free (only the layout changes); data moves in `stored`, if a consumer needs another
order. So the activations of a convolutional net stay NHWC from the first convolution to the last,
and transposes remain only at the borders and at reshapes that need the framework's order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pockengine.compiler.ir import Builder, DType, Shape, Value

Layout = tuple[int, ...]

NHWC: Layout = (0, 2, 3, 1)
"""Our order of an activation that the framework calls (N, C, H, W)."""
HWIO: Layout = (2, 3, 1, 0)
"""Our order of a convolution's weight that the framework calls (O, I, H, W)."""
IN_OUT: Layout = (1, 0)
"""Our order of a linear layer's weight that the framework calls (out, in)."""


def identity(rank: int) -> Layout:
    """Return the framework's own order."""
    return tuple(range(rank))


@dataclass(eq=False)
class Tensor:
    """One tensor of the framework; `copies` caches it in other layouts."""

    value: Value
    layout: Layout
    copies: dict[Layout, Value] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.layout)

    @property
    def shape(self) -> Shape:
        """Shape as the framework sees it."""
        sizes = dict(zip(self.layout, self.value.shape, strict=True))
        return tuple(sizes[dim] for dim in range(self.rank))

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.value.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.value.type.size

    def axis(self, dim: int) -> int:
        """Return our axis that holds the framework's dimension `dim`, counted from either end."""
        return self.layout.index(dim % self.rank)


def plain(value: Value) -> Tensor:
    """Wrap a value that is stored in the framework's own order."""
    return Tensor(value, identity(len(value.shape)))


def stored(g: Builder, x: Tensor, layout: Layout) -> Value:
    """Return `x` in this order; a reshape when only dimensions of size 1 move."""
    if x.layout == layout:
        return x.value
    if layout not in x.copies:
        shape = x.shape
        target = tuple(shape[dim] for dim in layout)
        if _order(x.layout, shape) == _order(layout, shape):
            x.copies[layout] = g.reshape(x.value, shape=target)
        else:
            perm = tuple(x.layout.index(dim) for dim in layout)
            x.copies[layout] = g.transpose(x.value, perm=perm)
    return x.copies[layout]


def framework_order(g: Builder, x: Tensor) -> Value:
    """Return `x` in the framework's own order."""
    return stored(g, x, identity(x.rank))


def aligned(g: Builder, x: Tensor, layout: Layout) -> Value:
    """Return `x` in a form that broadcasts like the framework's against a tensor of this layout.

    The framework aligns shapes at their last dimension, which another layout keeps elsewhere.
    """
    rank = len(layout)
    if x.rank == 0 or x.layout == layout:
        return x.value
    lead = rank - x.rank
    shape = (1,) * lead + x.shape
    own = tuple(dim + lead for dim in x.layout)
    if _order(own, shape) == _order(layout, shape):
        target = tuple(shape[dim] for dim in layout)
        while target and target[0] == 1:
            target = target[1:]
        return x.value if target == x.value.shape else g.reshape(x.value, shape=target)
    value = stored(g, x, tuple(dim - lead for dim in layout if dim >= lead))
    target = tuple(shape[dim] for dim in layout)
    return value if not lead else g.reshape(value, shape=target)


def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Permute the framework's dimensions; moves nothing."""
    order = [dim % x.rank for dim in dims]
    return Tensor(x.value, tuple(order.index(dim) for dim in x.layout))


def reshape(g: Builder, x: Tensor, shape: Shape) -> Tensor:
    """Reshape with the framework's semantics, in stored order if equivalent."""
    if shape == x.shape:
        return x
    groups = _groups(x.shape, shape)
    order = _stored_groups(groups, x.layout, x.shape)
    if order is None:
        return plain(g.reshape(framework_order(g, x), shape=shape))
    layout = tuple(dim for index in order for dim in groups[index][1])
    target = tuple(shape[dim] for dim in layout)
    value = x.value if target == x.value.shape else g.reshape(x.value, shape=target)
    return Tensor(value, layout)


def _order(layout: Layout, shape: Shape) -> list[int]:
    """Return the dimensions that hold more than one element, in stored order."""
    return [dim for dim in layout if shape[dim] != 1]


def _groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Split both shapes into the shortest runs of dimensions with equal products."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left: list[int] = []
        right: list[int] = []
        products = [1, 1]
        while not (left or right) or products[0] != products[1]:
            if i < len(old) and (products[0] <= products[1] or j == len(new)):
                products[0] *= old[i]
                left.append(i)
                i += 1
            else:
                products[1] *= new[j]
                right.append(j)
                j += 1
        groups.append((left, right))
    return groups


def _stored_groups(
    groups: list[tuple[list[int], list[int]]], layout: Layout, shape: Shape
) -> list[int] | None:
    """Return the groups in stored order; None when one is not stored in one piece, in order."""
    owner = {dim: index for index, (old, _) in enumerate(groups) for dim in old}
    order: list[int] = []
    for dim in _order(layout, shape):
        if not order or order[-1] != owner[dim]:
            order.append(owner[dim])
    whole = [dim for index in order for dim in groups[index][0] if shape[dim] != 1]
    if len(order) != len(set(order)) or whole != _order(layout, shape):
        return None
    # A group of ones may be anywhere.
    return order + [index for index in range(len(groups)) if index not in order]
