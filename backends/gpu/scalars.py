"""Element types in the kernels' dialect: memory types and register types."""

import math
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir import BOOL, F32, I32, I64, DType
from pockengine.errors import CompileError


@dataclass(frozen=True)
class GpuScalar:
    """`stored` is the type in memory, `register` that of a variable.

    `load` and `store` are formats of a pointer, an index and, to store, a variable.
    """

    stored: str
    register: str
    load: str = "{0}[{1}]"
    store: str = "{0}[{1}] = {2};"


SCALARS: dict[DType, GpuScalar] = {
    F32: GpuScalar("float", "float"),
    I32: GpuScalar("int", "int"),
    I64: GpuScalar("pe_i64", "pe_i64"),
    BOOL: GpuScalar("pe_u8", "int", store="{0}[{1}] = (pe_u8){2};"),
    DType.I8: GpuScalar("pe_i8", "int", store="{0}[{1}] = (pe_i8){2};"),
    DType.U8: GpuScalar("pe_u8", "int", store="{0}[{1}] = (pe_u8){2};"),
    DType.BF16: GpuScalar(
        "pe_u16", "float", "pe_from_bf16({0}[{1}])", "{0}[{1}] = pe_to_bf16({2});"
    ),
    DType.F16: GpuScalar(
        "pe_half", "float", "pe_load_half({0}, {1})", "pe_store_half({0}, {1}, {2});"
    ),
}
"""Types that kernels support. Integers of 8 bits are codes of stored weights."""


def scalar_of(dtype: DType) -> GpuScalar:
    """Return the row of a type; CompileError if kernels do not support it."""
    if dtype not in SCALARS:
        known = ", ".join(known.value for known in SCALARS)
        raise CompileError(f"the GPU backend has no {dtype.value}; it has {known}")
    return SCALARS[dtype]


def literal(value: float | int | bool, dtype: DType) -> str:
    """Return a constant as a literal; floats round-trip exactly."""
    if not dtype.is_float:
        return f"(({scalar_of(dtype).register}){int(value)})" if dtype is I64 else str(int(value))
    number = float(value)
    if math.isnan(number):
        return "PE_NAN"
    if math.isinf(number):
        return "PE_INFINITY" if number > 0 else "(-PE_INFINITY)"
    text = f"{float(np.float32(number)):.9g}"
    text = f"{text if any(mark in text for mark in '.e') else text + '.0'}f"
    return text if number >= 0 and text[0] != "-" else f"({text})"
