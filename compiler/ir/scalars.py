"""The table of scalar types: every property of an element type, defined once.

Ops calculate with computed types. Stored types (bf16, f16, i8, u8) are only moved and cast, so a
graph casts them first; i8 is also multiplied, by products that sum in i32. Names elsewhere derive
from the value: safetensors' "BF16" is its upper case, and so is C's `PE_BF16`. Other tables (C's
types, a framework's) are keyed by these types.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pockengine.errors import GraphError

BF16_FORM = np.dtype([("bf16", "<u2")])
"""The upper half of an f32: a structured dtype, on which NumPy does no arithmetic."""


@dataclass(frozen=True)
class Scalar:
    """An element type: its NumPy dtype, with the same bytes, and its properties.

    `kind` is float, integer or bool. Gradients flow through differentiable types only.
    """

    numpy: np.dtype[np.generic]
    kind: str
    computed: bool = False
    differentiable: bool = False


class DType(enum.Enum):
    """Element type; the value is its name in the text form."""

    F32 = "f32"
    BF16 = "bf16"
    F16 = "f16"
    I8 = "i8"
    U8 = "u8"
    I32 = "i32"
    I64 = "i64"
    BOOL = "bool"

    @property
    def scalar(self) -> Scalar:
        """The type's row of the table."""
        return SCALARS[self]

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype with the same bytes."""
        return SCALARS[self].numpy

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(SCALARS[self].numpy.itemsize)

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return SCALARS[self].kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether elements are integers; bool is neither."""
        return SCALARS[self].kind == "integer"

    @property
    def computed(self) -> bool:
        """Whether ops calculate with it; other types are only moved and cast."""
        return SCALARS[self].computed

    @property
    def differentiable(self) -> bool:
        """Whether gradients flow through values of this type."""
        return SCALARS[self].differentiable

    @property
    def stored_name(self) -> str:
        """Its name in safetensors files, and after `PE_` in C."""
        return self.value.upper()

    @classmethod
    def of(cls, array: np.ndarray) -> "DType":
        """Element type of a NumPy array; GraphError names an unsupported one."""
        return cls.of_numpy(array.dtype)

    @classmethod
    def of_numpy(cls, numpy: np.dtype[np.generic]) -> "DType":
        """Element type with this NumPy form; GraphError names an unsupported one."""
        for dtype, scalar in SCALARS.items():
            if numpy == scalar.numpy:
                return dtype
        raise GraphError(f"arrays of {numpy} are not supported; use one of {numpy_names(cls)}")


SCALARS: dict[DType, Scalar] = {
    DType.F32: Scalar(np.dtype(np.float32), "float", computed=True, differentiable=True),
    DType.BF16: Scalar(BF16_FORM, "float"),
    DType.F16: Scalar(np.dtype(np.float16), "float"),
    DType.I8: Scalar(np.dtype(np.int8), "integer", differentiable=True),
    DType.U8: Scalar(np.dtype(np.uint8), "integer"),
    DType.I32: Scalar(np.dtype(np.int32), "integer", computed=True),
    DType.I64: Scalar(np.dtype(np.int64), "integer", computed=True),
    DType.BOOL: Scalar(np.dtype(np.bool_), "bool", computed=True),
}

COMPUTED = tuple(dtype for dtype in DType if dtype.computed)


def numpy_names(dtypes: Iterable[DType]) -> str:
    """NumPy names of the supported types, as a message lists them."""
    names = ("bfloat16" if dtype is DType.BF16 else str(dtype.numpy) for dtype in dtypes)
    return ", ".join(names)


def to_bf16(numbers: np.ndarray) -> np.ndarray:
    """Round f32 to the nearest bf16, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    upper = np.where(np.isnan(numbers), quiet, rounded).astype(np.uint16)
    return upper.reshape(np.shape(numbers)).view(BF16_FORM).reshape(np.shape(numbers))


def from_bf16(array: np.ndarray) -> np.ndarray:
    """Widen bf16 to f32, exactly."""
    bits = array["bf16"].astype(np.uint32) << np.uint32(16)
    return np.asarray(bits).view(np.float32).reshape(array.shape)


def numbers_of(array: np.ndarray) -> np.ndarray:
    """Elements in a form that NumPy calculates with: bf16 as f32, others unchanged."""
    return from_bf16(array) if array.dtype == BF16_FORM else array


def of_numbers(numbers: object, dtype: DType) -> np.ndarray:
    """Convert f32 numbers, or numbers of the type itself, to an array of the type."""
    if dtype is DType.BF16:
        return to_bf16(np.asarray(numbers, np.float32))
    return np.asarray(numbers, dtype.numpy)


def converted(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Convert between types; floats saturate to integers, and NaN becomes 0.

    Quantized integers convert as the stored integers, without their scale.
    """
    x = numbers_of(array)
    if x.dtype.kind != "f" or not dtype.is_integer:
        return of_numbers(x, dtype)
    limits = np.iinfo(str(dtype.numpy))
    over, under = x >= float(limits.max) + 1, x < float(limits.min)
    fits = np.where(over | under | np.isnan(x), 0, x).astype(dtype.numpy)
    return np.where(over, limits.max, np.where(under, limits.min, fits)).astype(dtype.numpy)


def widens(numpy: np.dtype[np.generic], dtype: DType) -> bool:
    """Whether this type, which has more bits, represents all numbers of a NumPy type."""
    kinds = "iu" if dtype.is_integer else "f" if dtype is DType.F32 else ""
    return numpy.kind in kinds and np.can_cast(numpy, dtype.numpy)
