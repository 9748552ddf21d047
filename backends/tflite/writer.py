"""Write the nodes of one entry as a TFLite subgraph, with the layouts of
`runtimes/layout_writer.py`.

A trained param is a variable: it is read at its first use, and assigned when its new content is
computed.
"""

from collections.abc import Iterator

from pockengine.backends.runtimes.layout import Layout, between, laid_out
from pockengine.backends.runtimes.layout_writer import LayoutWriter
from pockengine.backends.runtimes.settle import settled_layouts
from pockengine.backends.tflite.controls import COUNTED, is_training, variable_of
from pockengine.backends.tflite.kinds import KINDS
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.shared import Shared
from pockengine.backends.tflite.subgraph import SubgraphWriter
from pockengine.compiler.controls import CONTROLS
from pockengine.compiler.ir import I32, Graph, Node, Value
from pockengine.compiler.ir.graph import Param, Space

OUTPUT_FIRST: Layout = (3, 0, 1, 2)
"""OHWI of an HWIO weight, as a convolution reads it."""
WEIGHTS = {"conv2d": 1, "conv2d_dx": 1}
"""Operands that are windows."""


class EntryWriter(SubgraphWriter, LayoutWriter[LiteTensor]):
    """One entry's subgraph while it is written."""

    def __init__(self, entry: str, graph: Graph, shared: Shared, first: int) -> None:
        SubgraphWriter.__init__(self, entry, shared)
        LayoutWriter.__init__(self, graph, shared.written)
        self.call_once(first)
        for name, layout in settled_layouts(graph, _windows).items():
            if graph.params[name].space is Space.MUTABLE:
                self.own_layout(name, layout)
        self.inputs: dict[str, int] = {}
        for value in graph.inputs:
            if is_training(entry) and value.name in CONTROLS:
                self.bind(value, self._control(value))
            else:
                tensor = self.input(value.name, KINDS[value.dtype], value.shape)
                self.inputs[value.name] = tensor.number
                self.bind(value, tensor)

    def begin(self, node: Node) -> None:
        """Name the following operators after this node."""
        self.label = str(node)

    def frozen(self, param: Param, layout: Layout) -> LiteTensor:
        """Return a frozen param as a constant."""
        data = self.shared.frozen_param(param, layout)
        return self.shared_tensor(data, data.shape, KINDS[param.value.dtype])

    def content(self, param: Value, layout: Layout) -> LiteTensor:
        """Read a param's variable."""
        shape = laid_out(param.shape, layout)
        return self.variable(param.name, KINDS[param.dtype], shape)

    def write(self, param: Value, tensor: LiteTensor, layout: Layout) -> None:
        """Set the new content of a param to a tensor in this layout."""
        own = self.own_layout(param.name, layout)
        if layout != own:
            tensor = self.transpose(tensor, between(layout, own))
        self.assign(param.name, tensor)

    def results(self) -> dict[str, int]:
        """Make the graph's outputs the subgraph's, and return their tensors."""
        self.label = "the outputs"
        return self.outputs({name: self.read(value) for name, value in self.graph.outputs.items()})

    def _control(self, value: Value) -> LiteTensor:
        """Read a control's variable; counters are incremented."""
        variable = variable_of(value.name)
        tensor = self.variable(variable, KINDS[value.dtype], ())
        if value.name in COUNTED:
            tensor = self.broadcast("ADD", tensor, self.scalar(1, I32))
            self.assign(variable, tensor)
        return tensor


def _windows(node: Node) -> Iterator[tuple[Value, Layout]]:
    """Yield the windows of dense convolutions and their gradients."""
    window = node.result if node.op == "conv2d_dw" else None
    if node.op in WEIGHTS:
        window = node.operands[WEIGHTS[node.op]]
    if window is not None and node.attrs["groups"] == 1:
        yield window, OUTPUT_FIRST
