"""Matrix products."""

from collections.abc import Mapping

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.forms.steps import step_of, stepped
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.factors import floats
from pockengine.backends.runtimes.layout import canonical
from pockengine.compiler.ir import Node, Value


def _matmul(w: EntryWriter, node: Node) -> None:
    a, b = floats(node, "onnx")
    transposed = (node.attrs["transpose_a"], node.attrs["transpose_b"])
    if len(a.shape) == len(b.shape) == 2:
        _matrices(w, node, (a, b), transposed)
    else:
        w.bind(node.result, _batches(w, (a, b), transposed))


def _matrices(
    w: EntryWriter, node: Node, pair: tuple[Value, Value], transposed: tuple[bool, bool]
) -> None:
    """Gemm, which reads either matrix transposed, so no layout needs a transpose.

    If the product is a gradient, it can include the step of the param.
    """
    names, turned = [], []
    for matrix, flipped in zip(pair, transposed, strict=True):
        layout = w.common_layout([matrix], matrix.shape)
        names.append(w.read(matrix, layout))
        turned.append(int(flipped != (layout != canonical(2))))
    step = step_of(w, node.result)
    if step is not None:
        both, sides = (names[0], names[1]), (turned[0], turned[1])
        w.bind(step.result, stepped(w, step, both, turned=sides, content=w.read(step.param)))
        return
    w.bind(node.result, w.node("Gemm", *names, transA=turned[0], transB=turned[1]))


def _batches(w: EntryWriter, pair: tuple[Value, Value], transposed: tuple[bool, bool]) -> str:
    """MatMul; a transposed operand gets a Transpose before it, which runtimes fuse."""
    names = []
    for matrices, flipped in zip(pair, transposed, strict=True):
        own = canonical(len(matrices.shape))
        names.append(w.read(matrices, (*own[:-2], own[-1], own[-2]) if flipped else own))
    return w.node("MatMul", *names)


FORMS: Mapping[str, Form] = {"matmul": _matmul}
