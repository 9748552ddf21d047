"""New contents of params: they leave the model as outputs of their own."""

from collections.abc import Mapping

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.layout import laid_out
from pockengine.compiler.ir import Node


def _assign(w: EntryWriter, node: Node) -> None:
    """Take a tensor as it lies, or fill the param with a scalar."""
    param, value = node.operands
    layout = w.common_layout([value], param.shape)
    name = w.aligned(value, layout)
    if value.shape != param.shape:
        name = w.node("Expand", name, w.numbers(laid_out(param.shape, layout)))
    w.write(param, name, layout)


FORMS: Mapping[str, Form] = {"assign": _assign}
