"""Element types in C, one row each."""

from dataclasses import dataclass

from pockengine.compiler.ir import BOOL, F32, I32, I64, DType


@dataclass(frozen=True)
class CScalar:
    """An element type in C.

    `vector` holds PE_VL elements in pe_vec.h (bool: a mask of 0 and -1; bf16 and f16 are f32 there,
    i8 and u8 are i32), `suffix` ends the names of its loads, stores and splats there, and `select`
    is `where` for results of this type.
    """

    ctype: str
    vector: str
    suffix: str
    select: str


C_SCALARS: dict[DType, CScalar] = {
    F32: CScalar("float", "pe_vf", "", "pe_select({0}, {1}, {2})"),
    I32: CScalar("int32_t", "pe_vi", "_i", "pe_select_i({0}, {1}, {2})"),
    I64: CScalar("int64_t", "pe_vl", "_l", "pe_select_l(pe_widen({0}), {1}, {2})"),
    BOOL: CScalar("uint8_t", "pe_vi", "_b", "pe_select_i({0}, {1}, {2})"),
    DType.BF16: CScalar("uint16_t", "pe_vf", "_bf", "pe_select({0}, {1}, {2})"),
    DType.F16: CScalar("uint16_t", "pe_vf", "_hf", "pe_select({0}, {1}, {2})"),
    DType.I8: CScalar("int8_t", "pe_vi", "_sb", "pe_select_i({0}, {1}, {2})"),
    DType.U8: CScalar("uint8_t", "pe_vi", "_ub", "pe_select_i({0}, {1}, {2})"),
}


def c_scalar(dtype: DType) -> CScalar:
    """The row of a type."""
    return C_SCALARS[dtype]
