"""Element types as the format numbers them (TensorProto.DataType); sessions need no onnx for it."""

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
"""Our types that ONNX has."""

RUNTIME_NAMES: Mapping[str, DType] = {
    "tensor(float)": DType.F32,
    "tensor(uint8)": DType.U8,
    "tensor(int8)": DType.I8,
    "tensor(int32)": DType.I32,
    "tensor(int64)": DType.I64,
    "tensor(bool)": DType.BOOL,
}
"""As ONNX Runtime names those of inputs and outputs that NumPy has too."""
