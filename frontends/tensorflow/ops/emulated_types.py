"""Types that our ops do not support, emulated by wider or narrower ones."""

from typing import Any

import numpy as np

from pockengine.compiler.ir import F32, I32, I64, Builder, DType
from pockengine.frontends import emit
from pockengine.frontends.dtypes import known_dtype
from pockengine.frontends.emit.halves import rounded
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor

HALVES = {"bfloat16": DType.BF16, "float16": DType.F16}
"""TensorFlow's floats of 16 bits, whose results are f32, rounded."""

EMULATED = {"float64": "float32", "uint8": "int32", **dict.fromkeys(HALVES, "float32")}
"""TensorFlow's type -> NumPy's name of the IR type."""

WRAPPING = frozenset({"Add", "AddV2", "Invert", "LeftShift", "Mul", "Neg", "Sub"})
"""Operators that may leave the range of bytes."""

_KEEPING = """
    BitwiseAnd BitwiseOr BitwiseXor BroadcastTo Cast ConcatV2 Equal ExpandDims FloorDiv FloorMod
    GatherV2 Greater GreaterEqual Identity IdentityN Less LessEqual Maximum Minimum NotEqual
    OnesLike Pack Reshape RightShift Select SelectV2 Shape Slice Split SplitV Squeeze
    StopGradient StridedSlice Tile Transpose Unpack ZerosLike
"""
BYTES = WRAPPING.union(_KEEPING.split())
"""Operators that may process bytes."""

EXACT = frozenset(_KEEPING.split()) - {"Cast", "FloorDiv", "FloorMod"} | {
    "MaxPool",
    "Relu",
    "Relu6",
}
"""Operators whose results need no rounding, because they are elements of their inputs."""


def as_byte(g: Builder, x: Tensor) -> Tensor:
    """Convert to a byte: floats are truncated to integers, of which the lowest 8 bits remain."""
    whole = emit.cast(g, x, I64 if x.dtype is I64 else I32)
    return emit.cast(g, emit.arithmetic(g, "bit_and", whole, 0xFF), I32)


def checked(op: Any) -> None:
    """Raise Unsupported for an operator that does not keep bytes, or widens floats."""
    if op.type not in BYTES and any(x.dtype.name == "uint8" for x in (*op.inputs, *op.outputs)):
        raise Unsupported("bytes (uint8); convert to float32 or int32 before")
    widens = op.type == "Cast" and op.inputs[0].dtype.is_floating
    if widens and op.outputs[0].dtype.name == "float64":
        readers = {reader.type for reader in op.outputs[0].consumers()}
        if not readers or readers - {"Select", "SelectV2"}:
            known_dtype(np.float64, "a cast to float64")


def emulated(array: np.ndarray) -> np.ndarray:
    """Convert a constant array to its emulating type."""
    return array.astype(EMULATED.get(array.dtype.name, array.dtype))


def wrapped(g: Builder, op: Any, result: Any) -> Any:
    """Bring an operator's results back into the range, or to the precision, of their types."""
    if isinstance(result, (list, tuple)):
        outputs = zip(result, op.outputs, strict=False)
        return [_wrapped(g, op.type, x, output.dtype.name) for x, output in outputs]
    return _wrapped(g, op.type, result, op.outputs[0].dtype.name)


def _wrapped(g: Builder, name: str, result: Any, dtype: str) -> Any:
    if not isinstance(result, Tensor):
        return result
    if dtype == "uint8" and name in WRAPPING:
        return emit.arithmetic(g, "bit_and", result, 0xFF)
    if dtype in HALVES and result.dtype is F32 and name not in EXACT:
        return rounded(g, result, HALVES[dtype])
    return result
