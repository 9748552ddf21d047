"""Layouts: the order of a tensor's dimensions in the model.

A layout is a permutation: dimension i of the tensor in the model is dimension `layout[i]` of the
value. Our images are NHWC and weights HWIO; ONNX has NCHW and OIHW.
"""

from collections.abc import Iterable, Sequence

from pockengine.compiler.ir.types import Shape

Layout = tuple[int, ...]

IMAGES_FIRST: Layout = (0, 3, 1, 2)
"""NCHW of an NHWC value."""
WEIGHT_FIRST: Layout = (3, 2, 0, 1)
"""OIHW of an HWIO value."""


def canonical(rank: int) -> Layout:
    """The value's own order of dimensions."""
    return tuple(range(rank))


def laid_out(shape: Shape, layout: Layout) -> Shape:
    """Shape of a value in a layout."""
    return tuple(shape[axis] for axis in layout)


def between(source: Layout, target: Layout) -> Layout:
    """Permutation from one layout to another."""
    return tuple(source.index(axis) for axis in target)


def moves_nothing(shape: Shape, source: Layout, target: Layout) -> bool:
    """Whether only dimensions of size 1 move, so that a reshape is enough."""
    order = [[axis for axis in layout if shape[axis] != 1] for layout in (source, target)]
    return order[0] == order[1]


def without(layout: Layout, axes: Iterable[int]) -> Layout:
    """Layout after removing the value's `axes`."""
    gone = set(axes)
    return ranked([axis for axis in layout if axis not in gone])


def ranked(order: Sequence[int]) -> Layout:
    """Layout of a value with only these dimensions, in this order."""
    ranks = sorted(order)
    return tuple(ranks.index(axis) for axis in order)
