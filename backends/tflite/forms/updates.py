"""New contents of params: what their variables hold from here on."""

from collections.abc import Mapping

from pockengine.backends.runtimes.layout import laid_out
from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import Node


def _assign(w: EntryWriter, node: Node) -> None:
    """Take a tensor as it lies, or fill the param with a scalar."""
    param, value = node.operands
    layout = w.common_layout([value], param.shape)
    tensor = w.expand(w.aligned(value, layout), laid_out(param.shape, layout))
    w.write(param, tensor, layout)


FORMS: Mapping[str, Form] = {"assign": _assign}
