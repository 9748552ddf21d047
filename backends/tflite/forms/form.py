"""The type of a form: it appends operators for one IR node, and binds its results."""

from collections.abc import Callable

from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import Node

Form = Callable[[EntryWriter, Node], None]
