"""Element types in C: one row for each that the kernels know."""

from dataclasses import dataclass

from pockengine.compiler.ir import BOOL, F32, I32, I64, DType, Node
from pockengine.errors import CompileError


@dataclass(frozen=True)
class CScalar:
    """An element type in C.

    `vector` holds PE_VL elements in pe_vec.h (bool: a mask of 0 and -1), `suffix` ends the names of
    its loads, stores and splats there, and `select` is `where` for results of this type.
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
}


def c_scalar(dtype: DType) -> CScalar:
    """The row of a type; CompileError names one that no kernel knows."""
    if dtype not in C_SCALARS:
        known = ", ".join(known.value for known in C_SCALARS)
        raise CompileError(f"the C backend has no kernels for {dtype.value}, only for {known}")
    return C_SCALARS[dtype]


def check_types(node: Node) -> None:
    """Raise CompileError where a node, or the body of a fusion, has a type without kernels."""
    nodes = [node, *(node.attrs["body"].nodes if "body" in node.attrs else ())]
    for value in (value for inner in nodes for value in (*inner.operands, *inner.results)):
        if value.dtype not in C_SCALARS:
            known = ", ".join(known.value for known in C_SCALARS)
            raise CompileError(
                f"{node}: {value!r} is {value.dtype.value}, which the C backend has no kernels "
                f"for, only for {known}; cast it before it is compiled"
            )
