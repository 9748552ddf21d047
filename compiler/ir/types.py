"""Static types of values: an element type and a shape.

Every shape is a tuple of positive sizes (a scalar has the empty tuple); nothing is symbolic, as
kernels are specialised for their shapes. Variable sizes are handled by variants of a whole program.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.quantization import Quantization
from pockengine.compiler.ir.scalars import DType
from pockengine.errors import GraphError

__all__ = ["BOOL", "F32", "I32", "I64", "DType", "Shape", "TensorType", "f32"]

Shape = tuple[int, ...]

F32, I32, I64, BOOL = DType.F32, DType.I32, DType.I64, DType.BOOL


@dataclass(frozen=True)
class TensorType:
    """Type of a value: dtype, shape (row-major, contiguous), and quantization, if any."""

    dtype: DType
    shape: Shape
    quantization: Quantization | None = None

    def __post_init__(self) -> None:
        if any(not isinstance(size, int) or size < 1 for size in self.shape):
            raise GraphError(f"shape {self.shape} must hold positive integers only")
        if self.quantization is not None:
            self.quantization.check(self.dtype, self.shape)

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
        quantization = "" if self.quantization is None else str(self.quantization)
        return f"{self.dtype.value}[{','.join(map(str, self.shape))}]{quantization}"

    def with_shape(self, shape: Shape) -> "TensorType":
        """The same elements in another shape; GraphError if channels have separate scales."""
        if self.quantization is not None and self.quantization.axis is not None:
            raise GraphError(f"{self} has a scale for each channel; only transpose moves it")
        return TensorType(self.dtype, shape, self.quantization)

    def transposed(self, perm: Sequence[int]) -> "TensorType":
        """The same elements with permuted dimensions."""
        quantization = self.quantization and self.quantization.transposed(perm)
        return TensorType(self.dtype, tuple(self.shape[axis] for axis in perm), quantization)


def f32(*shape: int) -> TensorType:
    """Type of a float32 tensor with this shape."""
    return TensorType(F32, shape)
