"""Writes the nodes of one entry, and remembers in which layouts each value is held.

A form reads its operands in the layouts that it wants and says in which one its result lies. What
is not held so is transposed, once. Elementwise forms go along with their operands, so images stay
channels-first between convolutions, and transposes meet at the borders alone.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx

from pockengine.backends.onnx.bindings import CONSTANTS, NEXT
from pockengine.backends.onnx.layout import (
    Layout,
    between,
    canonical,
    laid_out,
    moves_nothing,
    ranked,
)
from pockengine.backends.onnx.protos import described, outside, tensor
from pockengine.backends.onnx.settle import settled_layouts
from pockengine.backends.onnx.tensors import Tensors
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ir.graph import Graph, Space
from pockengine.compiler.ir.types import DType, Shape

OPSET, IR_VERSION = 18, 8
"""The oldest that have exclusive or of integers, by which random numbers are made."""
INLINE_BYTES = 1024
"""Larger constants lie in the file beside the model."""


class EntryWriter:
    """One entry's ONNX graph while it is written."""

    def __init__(self, graph: Graph, tensors: Tensors) -> None:
        self.graph, self.tensors = graph, tensors
        for name, layout in settled_layouts(graph).items():
            if graph.params[name].space is Space.MUTABLE:
                tensors.layout(name, layout)
        self._inputs: dict[str, onnx.ValueInfoProto] = {}
        self._constants: dict[str, onnx.TensorProto] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._held: dict[Value, dict[Layout, str]] = {}
        self._aligned: dict[tuple[Value, Layout], str] = {}
        self._written: dict[str, str] = {}
        self._names = {*(value.name for value in graph.values()), *graph.outputs}
        self._names |= {NEXT + name for name in graph.params}
        self._node: Node | None = None
        for value in graph.inputs:
            self._declare(value, canonical(value.type.rank))

    def begin(self, node: Node) -> None:
        """Name what follows by this node."""
        self._node = node

    def layouts(self, value: Value) -> tuple[Layout, ...]:
        """The layouts in which a result or input is held; none of a param or constant."""
        if value in self.graph.constants or self.graph.param_of(value) is not None:
            return ()
        return tuple(self._held.get(value, ()))

    def common_layout(self, values: Sequence[Value], shape: Shape) -> Layout:
        """The layout that most of those values lie in which have this shape.

        Params come last, as they may be wanted in any layout.
        """
        alike = [value for value in values if value.shape == shape]
        votes = Counter(layout for value in alike for layout in self.layouts(value))
        if not votes:
            settled = (self.tensors.layouts.get(value.name) for value in alike)
            votes = Counter(layout for layout in settled if layout is not None)
        return max(votes, key=lambda layout: votes[layout]) if votes else canonical(len(shape))

    def read(self, value: Value, layout: Layout | None = None) -> str:
        """Name of the tensor that holds a value in this layout; without one, as it is ours."""
        layout = canonical(value.type.rank) if layout is None else layout
        held = self._held.setdefault(value, {})
        if layout not in held:
            held[layout] = self._make(value, layout)
        return held[layout]

    def aligned(self, value: Value, layout: Layout) -> str:
        """Read an operand that broadcasts against tensors in this layout."""
        rank, wanted = value.type.rank, len(layout)
        if rank == wanted:
            return self.read(value, layout)
        if rank == 0 or layout == canonical(wanted):
            return self.read(value)
        if (value, layout) not in self._aligned:
            lead = wanted - rank
            name = self.read(value, ranked([axis for axis in layout if axis >= lead]))
            shape = laid_out((1,) * lead + value.shape, layout)
            self._aligned[value, layout] = self.reshape(name, shape)
        return self._aligned[value, layout]

    def bind(self, value: Value, name: str, layout: Layout | None = None) -> None:
        """Say which tensor holds a result, in which layout."""
        layout = canonical(value.type.rank) if layout is None else layout
        self._held[value] = {layout: name}

    def share(self, value: Value, other: Value) -> None:
        """Say that a result is another value of the same type."""
        layout = self.common_layout([other], other.shape)
        self.bind(value, self.read(other, layout), layout)

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
        """Give a tensor another shape."""
        return self.node("Reshape", name, self.numbers(shape))

    def transpose(self, name: str, perm: Layout) -> str:
        """Put a tensor's dimensions in another order."""
        return name if perm == canonical(len(perm)) else self.node("Transpose", name, perm=perm)

    def numbers(self, values: Sequence[int]) -> str:
        """Return a constant vector of i64, as shapes and axes are."""
        return self.constant(np.asarray(values, np.int64))

    def scalar(self, number: float, dtype: DType = DType.F32) -> str:
        """Return a constant without dimensions."""
        return self.constant(np.asarray(number, dtype.numpy))

    def constant(self, data: np.ndarray) -> str:
        """Return a constant, the same for equal arrays."""
        data = np.ascontiguousarray(data).reshape(data.shape)
        digest = hashlib.sha256(data.reshape(-1).view(np.uint8).data).hexdigest()[:24]
        key = f"constant.{DType.of(data).value}.{'x'.join(map(str, data.shape))}.{digest}"
        if key not in self._constants:
            if data.nbytes > INLINE_BYTES:
                place = self.tensors.place(key, data)
                dtype = DType.of(data)
                self._constants[key] = outside(key, dtype, data.shape, CONSTANTS, place)
            else:
                self._constants[key] = tensor(key, data)
        return key

    def write(self, param: Value, name: str, layout: Layout) -> None:
        """Make a tensor the new content of a param, that lies in this layout."""
        own = self.tensors.layout(param.name, layout)
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
        """Give outputs their names: that of the tensor, unless it has another already."""
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

    def _make(self, value: Value, layout: Layout) -> str:
        """Return a tensor that holds the value so, which none does yet."""
        data = self.graph.constants.get(value)
        if data is not None:
            return self.constant(data.transpose(layout))
        param = self.graph.param_of(value)
        if param is not None and param.space is Space.CONSTANT:
            place = self.tensors.frozen_place(value.name, layout, param.contents.read)
            name = self._unique(value.name) if value.name in self._constants else value.name
            shape = laid_out(value.shape, layout)
            self._constants[name] = outside(name, value.dtype, shape, CONSTANTS, place)
            return name
        if param is not None and not self._held[value]:
            own = self.tensors.layout(value.name, layout)
            self._declare(value, own)
            if own == layout:
                return value.name
        source, name = next(iter(self._held[value].items()))
        if moves_nothing(value.shape, source, layout):
            return self.reshape(name, laid_out(value.shape, layout))
        return self.transpose(name, between(source, layout))

    def _declare(self, value: Value, layout: Layout) -> None:
        """Make a value an input of the model."""
        if value.name not in self._inputs:
            shape = laid_out(value.shape, layout)
            self._inputs[value.name] = described(value.name, value.dtype, shape)
            self._held.setdefault(value, {})[layout] = value.name

    def _unique(self, stem: str) -> str:
        name, count = stem, 0
        while name in self._names:
            count += 1
            name = f"{stem}.{count}"
        self._names.add(name)
        return name
