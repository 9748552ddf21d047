"""Static types of values: an element type and a shape.

Every shape is a tuple of positive sizes (a scalar has the empty tuple); nothing is symbolic, as
kernels are specialized for their shapes. Variable sizes are handled by variants of a whole program.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.scalars import DType
from pockengine.errors import GraphError

__all__ = ["BOOL", "F32", "I32", "I64", "DType", "Shape", "TensorType", "f32"]

Shape = tuple[int, ...]

F32, I32, I64, BOOL = DType.F32, DType.I32, DType.I64, DType.BOOL


@dataclass(frozen=True)
class TensorType:
    """Type of a value: dtype, and shape (row-major, contiguous)."""

    dtype: DType
    shape: Shape

    def __post_init__(self) -> None:
        if any(not isinstance(size, int) or size < 1 for size in self.shape):
            raise GraphError(f"shape {self.shape} must hold positive integers only")

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.value}[{','.join(map(str, self.shape))}]"

    def with_shape(self, shape: Shape) -> "TensorType":
        """The same elements in another shape."""
        return TensorType(self.dtype, shape)

    def transposed(self, perm: Sequence[int]) -> "TensorType":
        """The same elements with permuted dimensions."""
        return TensorType(self.dtype, tuple(self.shape[axis] for axis in perm))


def f32(*shape: int) -> TensorType:
    """Type of a float32 tensor with this shape."""
    return TensorType(F32, shape)
