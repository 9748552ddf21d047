"""TFLite's names of element types (TensorType)."""

from collections.abc import Mapping

from pockengine.compiler.ir.types import DType

KINDS: Mapping[DType, str] = {
    DType.F32: "FLOAT32",
    DType.F16: "FLOAT16",
    DType.U8: "UINT8",
    DType.I8: "INT8",
    DType.I32: "INT32",
    DType.I64: "INT64",
    DType.BOOL: "BOOL",
}
"""Our types that the runtime computes with or casts."""
FLOAT, INT, WIDE, UNSIGNED, TRUTH = "FLOAT32", "INT32", "INT64", "UINT32", "BOOL"
RESOURCE = "RESOURCE"
