"""ONNX's numbers of element types (TensorProto.DataType), so that sessions do not need onnx."""

from collections.abc import Mapping

from pockengine.compiler.ir.types import DType

NUMBERS: Mapping[DType, int] = {
    DType.F32: 1,
    DType.U8: 2,
    DType.I8: 3,
    DType.I32: 6,
    DType.I64: 7,
    DType.BOOL: 9,
    DType.F16: 10,
    DType.BF16: 16,
}
"""Our types that ONNX supports."""

RUNTIME_NAMES: Mapping[str, DType] = {
    "tensor(float)": DType.F32,
    "tensor(uint8)": DType.U8,
    "tensor(int8)": DType.I8,
    "tensor(int32)": DType.I32,
    "tensor(int64)": DType.I64,
    "tensor(bool)": DType.BOOL,
}
"""ONNX Runtime's names of the input and output types that NumPy supports."""
