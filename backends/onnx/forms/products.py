"""Matrix products."""

from collections.abc import Mapping

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.layout import canonical
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.compiler.ir import F32, Node, Value
from pockengine.errors import CompileError


def floats(node: Node) -> tuple[Value, Value]:
    """Return the factors; CompileError for integers, of which no form multiplies."""
    first, second = node.operands
    if first.dtype is not F32 or second.dtype is not F32:
        raise CompileError(
            f"{node}: the backend onnx multiplies f32 alone, not {first.type} and {second.type}; "
            "dequantize before, or choose the backend c"
        )
    return first, second


def _matmul(w: EntryWriter, node: Node) -> None:
    a, b = floats(node)
    transposed = (node.attrs["transpose_a"], node.attrs["transpose_b"])
    form = _matrices if len(a.shape) == len(b.shape) == 2 else _batches
    w.bind(node.result, form(w, (a, b), transposed))


def _matrices(w: EntryWriter, pair: tuple[Value, Value], transposed: tuple[bool, bool]) -> str:
    """Gemm, which reads either matrix transposed: however it lies, it is not moved."""
    names, turned = [], []
    for matrix, flipped in zip(pair, transposed, strict=True):
        layout = w.common_layout([matrix], matrix.shape)
        names.append(w.read(matrix, layout))
        turned.append(int(flipped != (layout != canonical(2))))
    return w.node("Gemm", *names, transA=turned[0], transB=turned[1])


def _batches(w: EntryWriter, pair: tuple[Value, Value], transposed: tuple[bool, bool]) -> str:
    """MatMul; a transposed operand lies so before, which runtimes fuse."""
    names = []
    for matrices, flipped in zip(pair, transposed, strict=True):
        own = canonical(len(matrices.shape))
        names.append(w.read(matrices, (*own[:-2], own[-1], own[-2]) if flipped else own))
    return w.node("MatMul", *names)


FORMS: Mapping[str, Form] = {"matmul": _matmul}
