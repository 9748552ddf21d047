"""Elementwise bodies for CPUs with integer vectors only: Hexagon's HVX.

Its vectors have 32 lanes of integers, and the functions of runtime/simd/pe_hvx_floats.h for floats;
a body with other float arithmetic runs on the scalar unit, four lanes at a time.
"""

from collections.abc import Iterable

from pockengine.compiler.ir import BOOL, F32, I32, DType, Node
from pockengine.devices.isa import ISAS
from pockengine.devices.schema import Device

WHOLE = frozenset({I32, DType.I8, DType.U8, BOOL})

ON_WHOLE = frozenset(
    {
        "abs", "add", "bit_and", "bit_or", "bit_xor", "cast", "eq", "ge", "gt", "le",
        "logical_and", "logical_not", "logical_or", "lt", "maximum", "minimum", "mul", "narrow",
        "ne", "neg", "relu", "rescale", "sign", "square", "sub", "unclamped", "where",
    }
)  # fmt: skip

ON_FLOATS = frozenset({"abs", "bits_float", "dequantize", "float_bits", "mul", "quantize", "where"})

LEAST_COLUMNS = 9
"""Minimum columns: shorter rows leave most of a vector empty, and the scalar unit is as fast."""


def integer_lanes(device: Device) -> int:
    """Lanes of integer-only vectors; 0 if floats have vectors, or there are none."""
    isa = ISAS[device.cpu.isa]
    return isa.dot_lanes if isa.vector_bytes == DType.F32.itemsize else 0


def by_integer_vectors(nodes: Iterable[Node], device: Device, columns: int) -> bool:
    """Whether integer vectors compute a body over rows of this many columns."""
    return bool(integer_lanes(device)) and columns >= LEAST_COLUMNS and all(map(_is_taken, nodes))


def _is_taken(node: Node) -> bool:
    dtypes = {value.dtype for value in (*node.operands, *node.results)}
    if dtypes <= WHOLE:
        return node.op in ON_WHOLE
    if not dtypes <= WHOLE | {F32}:
        return False
    to_float = node.op == "cast" and node.result.dtype is F32 and node.operands[0].dtype in WHOLE
    return node.op in ON_FLOATS or to_float
