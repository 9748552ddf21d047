"""The type of a form: it appends ONNX nodes for one IR node, and binds its results."""

from collections.abc import Callable

from pockengine.backends.onnx.writer import EntryWriter
from pockengine.compiler.ir import Node

Form = Callable[[EntryWriter, Node], None]
