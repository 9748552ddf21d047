"""Static types of values: an element type and a shape.

Every shape is a tuple of positive sizes (a scalar has the empty tuple); nothing is symbolic, as
kernels are specialised for their shapes. Ranges of sizes are variants of a whole program instead.
"""

import enum
import math
from dataclasses import dataclass

import numpy as np

from pockengine.errors import GraphError

Shape = tuple[int, ...]


class DType(enum.Enum):
    """Element type; the value is its name in the text form."""

    F32 = "f32"
    I32 = "i32"
    I64 = "i64"
    BOOL = "bool"

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype with the same bytes."""
        return _NUMPY[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(_NUMPY[self].itemsize)

    @property
    def is_float(self) -> bool:
        """Whether gradients can flow through values of this type."""
        return self is DType.F32

    @classmethod
    def of(cls, array: np.ndarray) -> "DType":
        """Element type of a NumPy array; GraphError names an unsupported one."""
        for dtype, numpy in _NUMPY.items():
            if array.dtype == numpy:
                return dtype
        raise GraphError(f"arrays of {array.dtype} are not supported; use one of {_names()}")


_NUMPY: dict[DType, np.dtype[np.generic]] = {
    DType.F32: np.dtype(np.float32),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.BOOL: np.dtype(np.bool_),
}

F32, I32, I64, BOOL = DType.F32, DType.I32, DType.I64, DType.BOOL


def _names() -> str:
    return ", ".join(str(numpy) for numpy in _NUMPY.values())


@dataclass(frozen=True)
class TensorType:
    """Type of a value: dtype and shape, row-major without gaps."""

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
        """The same dtype with another shape."""
        return TensorType(self.dtype, shape)


def f32(*shape: int) -> TensorType:
    """Type of a float32 tensor with this shape."""
    return TensorType(F32, shape)
