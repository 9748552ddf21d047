"""Operands of products: integer products of runtimes differ from ours, so none is emitted."""

from pockengine.compiler.ir import F32, Node, Value
from pockengine.errors import CompileError


def floats(node: Node, backend: str) -> tuple[Value, Value]:
    """Return the operands; CompileError for integers, which no form multiplies."""
    first, second = node.operands
    if first.dtype is not F32 or second.dtype is not F32:
        raise CompileError(
            f"{node}: the backend {backend} multiplies f32 alone, not {first.type} and "
            f"{second.type}; dequantize before, or choose the backend c"
        )
    return first, second
