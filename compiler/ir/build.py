"""Builder: the only way to create nodes. It infers the type of every result at once.

`g.matmul(a, b, transpose_a=True)` appends a node of any registered op and returns its result. For
ops with several results, or none, use `g.emit`, which returns the node.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.graph import Graph, Node, Param, ParamKind, Value
from pockengine.compiler.ir.scalars import numbers_of, of_numbers
from pockengine.compiler.ir.types import DType, TensorType
from pockengine.compiler.ops.registry import lookup
from pockengine.errors import GraphError

Emit = Callable[..., Value]


class Builder:
    """Appends inputs, params, constants and nodes to one graph, keeping names unique."""

    def __init__(self, graph: Graph) -> None:
        """Continue `graph`; new nodes are appended."""
        self.graph = graph
        self._names = {value.name for value in graph.values()}
        self._counters: dict[str, int] = {}
        self._scalars: dict[tuple[DType, float], Value] = {
            (value.dtype, data.item()): value
            for value, data in graph.constants.items()
            if data.ndim == 0
        }
        self._scope = ""
        self._sink = graph.nodes

    def __getattr__(self, op: str) -> Emit:
        """Return a function that emits `op` and returns its only result."""
        if op.startswith("_"):
            raise AttributeError(op)
        lookup(op)

        def emit(*operands: Value, **attrs: Any) -> Value:
            return self.emit(op, *operands, **attrs).result

        return emit

    def emit(self, op: str, *operands: Value, **attrs: Any) -> Node:
        """Append one node; GraphError if the operands' types or the attrs do not fit the op."""
        definition = lookup(op)
        full = definition.complete_attrs(attrs)
        definition.check_arity(len(operands))
        types = definition.result_types(tuple(value.type for value in operands), full)
        return self._append(Node(op, operands, (), attrs=full, scope=self._scope), types)

    def repeat(self, node: Node, operands: tuple[Value, ...]) -> Node:
        """Append a node with another node's op and attrs, on operands of the same types."""
        types = tuple(value.type for value in node.results)
        return self._append(
            Node(node.op, operands, (), attrs=dict(node.attrs), scope=self._scope), types
        )

    def _append(self, node: Node, types: tuple[TensorType, ...]) -> Node:
        node.results = tuple(
            Value(self.unique(node.op if len(types) == 1 else f"{node.op}.{index}"), type_, node)
            for index, type_ in enumerate(types)
        )
        self._sink.append(node)
        return node

    def append(self, node: Node) -> None:
        """Append an existing node, for rules that build on the node they replace."""
        self._sink.append(node)

    def input(self, name: str, type_: TensorType) -> Value:
        """Declare an input of the program."""
        value = Value(self._claim(name), type_)
        self.graph.inputs.append(value)
        return value

    def param(
        self,
        name: str,
        data: np.ndarray | Contents,
        *,
        permutation: tuple[int, ...] | None = None,
        trainable: bool = True,
        kind: ParamKind | None = None,
    ) -> Value:
        """Declare a weight (or, not trainable, a buffer) with its initial data."""
        contents = data if isinstance(data, Contents) else InMemory(data)
        value = Value(self._claim(name), contents.type)
        kind = kind or ParamKind.default(trainable)
        self.graph.params[name] = Param(
            value, contents, permutation, trainable=trainable, kind=kind
        )
        return value

    def constant(self, data: np.ndarray, name: str = "constant") -> Value:
        """Add a constant tensor."""
        array = np.ascontiguousarray(data).reshape(np.shape(data))
        value = Value(self.unique(name), TensorType(DType.of(array), tuple(array.shape)))
        self.graph.constants[value] = array
        return value

    def scalar(self, number: float, dtype: DType = DType.F32) -> Value:
        """Return a scalar constant; equal numbers share one value."""
        array = of_numbers(number, dtype)
        key, negative = (dtype, array.item()), np.signbit(numbers_of(array))
        if key not in self._scalars or negative != np.signbit(
            numbers_of(self.graph.constants[self._scalars[key]])
        ):
            self._scalars[key] = self.constant(array, "c")
        return self._scalars[key]

    def output(self, name: str, value: Value) -> None:
        """Name a result of the program."""
        if name in self.graph.outputs:
            raise GraphError(f"graph {self.graph.name} has an output {name!r} already")
        self.graph.outputs[name] = value

    @contextmanager
    def scope(self, path: str) -> Iterator[None]:
        """Set the scope (module path in the user's model) of nodes built inside."""
        before, self._scope = self._scope, path
        try:
            yield
        finally:
            self._scope = before

    @contextmanager
    def into(self, nodes: list[Node]) -> Iterator[None]:
        """Append the nodes built inside to `nodes`, for passes that rebuild the node list."""
        before, self._sink = self._sink, nodes
        try:
            yield
        finally:
            self._sink = before

    def unique(self, stem: str) -> str:
        """Return an unused name that starts with `stem`."""
        while True:
            count = self._counters.get(stem, 0)
            self._counters[stem] = count + 1
            name = f"{stem}_{count}"
            if name not in self._names:
                self._names.add(name)
                return name

    def _claim(self, name: str) -> str:
        if name in self._names:
            raise GraphError(f"graph {self.graph.name} has a value {name!r} already; rename one")
        self._names.add(name)
        return name
