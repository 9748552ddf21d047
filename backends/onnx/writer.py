"""Write the nodes of one entry as an ONNX graph, with the layouts of
`runtimes/layout_writer.py`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx

from pockengine.backends.onnx.bindings import CONSTANTS, NEXT
from pockengine.backends.onnx.protos import described, outside, tensor
from pockengine.backends.onnx.tensors import Tensors
from pockengine.backends.runtimes.layout import (
    WEIGHT_FIRST,
    Layout,
    between,
    canonical,
    laid_out,
)
from pockengine.backends.runtimes.layout_writer import LayoutWriter
from pockengine.backends.runtimes.settle import settled_layouts
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ir.graph import Graph, Param, Space
from pockengine.compiler.ir.types import DType, Shape

OPSET, IR_VERSION = 18, 8
"""The oldest versions with exclusive or of integers, which random numbers need."""
INLINE_BYTES = 1024
"""Larger constants are stored in the external file."""


WEIGHTS = {"conv2d": 1, "conv2d_dx": 1}
"""Operands that are windows."""


class EntryWriter(LayoutWriter[str]):
    """An entry's ONNX graph while it is written; tensors are identified by name."""

    def __init__(self, graph: Graph, tensors: Tensors) -> None:
        super().__init__(graph, tensors.layouts)
        self.tensors = tensors
        for name, layout in settled_layouts(graph, _windows).items():
            if graph.params[name].space is Space.MUTABLE:
                self.own_layout(name, layout)
        self.products: set[Value] = set()
        """Results that forms have emitted as products with a mask."""
        self.done: set[Node] = set()
        """IR nodes that an earlier node's form has emitted."""
        self.unchanged: dict[Node, Value] = {}
        """Nodes whose work an earlier form has included; they return an operand unchanged."""
        self._users = graph.users()
        self._into_outputs = _makers(graph.outputs.values())
        self._inputs: dict[str, onnx.ValueInfoProto] = {}
        self._constants: dict[str, onnx.TensorProto] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._written: dict[str, str] = {}
        self._names = {*(value.name for value in graph.values()), *graph.outputs}
        self._names |= {NEXT + name for name in graph.params}
        self._node: Node | None = None
        for value in graph.inputs:
            self._declare(value, canonical(value.type.rank))

    def begin(self, node: Node) -> None:
        """Name the following ONNX nodes after this node."""
        self._node = node

    def only_reader(self, value: Value, op: str | None = None) -> Node | None:
        """Return the only reader of a value (with this op, if given), if it has one."""
        users = self._users.get(value, [])
        alone = len(users) == 1 and all(value is not other for other in self.graph.outputs.values())
        return users[0] if alone and op in (None, users[0].op) else None

    def readers(self, value: Value) -> Sequence[Node]:
        """Return the nodes that read a value."""
        return self._users.get(value, [])

    def is_gradient(self, value: Value) -> bool:
        """Whether a value reaches no output of the entry, only written params."""
        return value.node not in self._into_outputs

    def is_made(self, value: Value) -> bool:
        """Whether a value is already available."""
        return value.node is None or bool(self.layouts(value))

    def node(self, op: str, *inputs: str, **attrs: object) -> str:
        """Append an ONNX node of one output and return its name."""
        return self.nodes(op, 1, *inputs, **attrs)[0]

    def nodes(self, op: str, outputs: int, *inputs: str, **attrs: object) -> list[str]:
        """Append an ONNX node and return the names of its outputs."""
        stem = self._node.results[0].name if self._node and self._node.results else "update"
        names = [self._unique(f"{stem}.{op}") for _ in range(outputs)]
        node = onnx.helper.make_node(op, list(inputs), names, **attrs)
        node.name = f"{names[0]}: {self._node}"
        self._nodes.append(node)
        return names

    def reshape(self, name: str, shape: Shape) -> str:
        """Reshape a tensor."""
        return self.node("Reshape", name, self.numbers(shape))

    def transpose(self, name: str, perm: Layout) -> str:
        """Transpose a tensor."""
        return name if perm == canonical(len(perm)) else self.node("Transpose", name, perm=perm)

    def numbers(self, values: Sequence[int]) -> str:
        """Return a constant i64 vector, for shapes and axes."""
        return self.constant(np.asarray(values, np.int64))

    def scalar(self, number: float, dtype: DType = DType.F32) -> str:
        """Return a scalar constant."""
        return self.constant(np.asarray(number, dtype.numpy))

    def constant(self, data: np.ndarray) -> str:
        """Return a constant, shared among equal arrays."""
        data = np.ascontiguousarray(data).reshape(data.shape)
        digest = hashlib.sha256(data.reshape(-1).view(np.uint8).data).hexdigest()[:24]
        key = f"constant.{DType.of(data).value}.{'x'.join(map(str, data.shape))}.{digest}"
        if key not in self._constants:
            if data.nbytes > INLINE_BYTES:
                place = self.tensors.place(key, data)
                dtype = DType.of(data)
                self._constants[key] = outside(key, dtype, data.shape, file=CONSTANTS, place=place)
            else:
                self._constants[key] = tensor(key, data)
        return key

    def write(self, param: Value, name: str, layout: Layout) -> None:
        """Set the new content of a param to a tensor in this layout."""
        own = self.own_layout(param.name, layout)
        self._declare(param, own)
        if layout != own:
            name = self.transpose(name, between(layout, own))
        self._written[param.name] = name

    def model(self, name: str) -> onnx.ModelProto:
        """Return the whole model of the entry."""
        self._node = None
        outputs = []
        results = {key: self.read(value) for key, value in self.graph.outputs.items()}
        for key, value in self.graph.outputs.items():
            outputs.append(described(key, value.dtype, value.shape))
        for key in self._written:
            value = self.graph.params[key].value
            shape = laid_out(value.shape, self.tensors.layouts[key])
            outputs.append(described(NEXT + key, value.dtype, shape))
        results |= {NEXT + key: tensor_name for key, tensor_name in self._written.items()}
        self._name_outputs(results)
        graph = onnx.helper.make_graph(
            self._nodes, name, list(self._inputs.values()), outputs, list(self._constants.values())
        )
        opset = onnx.helper.make_opsetid("", OPSET)
        return onnx.helper.make_model(
            graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="pockengine"
        )

    def _name_outputs(self, results: dict[str, str]) -> None:
        """Give outputs their names: the tensor's name, unless it already has another."""
        made = {name for node in self._nodes for name in node.output}
        renamed: dict[str, str] = {}
        for output, name in results.items():
            if name in made and name not in renamed:
                renamed[name] = output
            else:
                copied = renamed.get(name, name)
                self._nodes.append(onnx.helper.make_node("Identity", [copied], [output]))
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [renamed.get(name, name) for name in names]

    def frozen(self, param: Param, layout: Layout) -> str:
        """Return a frozen param as a constant in the external file."""
        value = param.value
        place = self.tensors.frozen_place(value.name, layout, param.contents.read)
        name = self._unique(value.name) if value.name in self._constants else value.name
        shape = laid_out(value.shape, layout)
        self._constants[name] = outside(name, value.dtype, shape, file=CONSTANTS, place=place)
        return name

    def content(self, param: Value, layout: Layout) -> str:
        """Return the input of a written param."""
        self._declare(param, layout)
        return param.name

    def _declare(self, value: Value, layout: Layout) -> None:
        """Make a value an input of the model."""
        if value.name not in self._inputs:
            shape = laid_out(value.shape, layout)
            self._inputs[value.name] = described(value.name, value.dtype, shape)
            self._laid_out.setdefault(value, {})[layout] = value.name

    def _unique(self, stem: str) -> str:
        name, count = stem, 0
        while name in self._names:
            count += 1
            name = f"{stem}.{count}"
        self._names.add(name)
        return name


def _makers(values: Iterable[Value]) -> set[Node]:
    """Return the nodes that these values depend on."""
    found: set[Node] = set()
    waiting = [value.node for value in values]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [operand.node for operand in node.operands]
    return found


def _windows(node: Node) -> Iterator[tuple[Value, Layout]]:
    """Yield the windows of convolutions and their gradients."""
    if node.op == "conv2d_dw":
        yield node.result, WEIGHT_FIRST
    elif node.op in WEIGHTS:
        yield node.operands[WEIGHTS[node.op]], WEIGHT_FIRST
