"""SSA graphs: ordered nodes over typed values, with named parameters, states, inputs and outputs.

    graph   = name, inputs, params, constants, nodes, outputs
    node    = results <- op(operands) {attrs}
    value   = an input, a parameter or state, a constant, or a result of exactly one node

The list of nodes is a topological order and, once scheduled, the order of execution. Parameters are
the weights that the artifact holds; states are params that the program itself maintains (momentum,
running statistics). Nodes of update ops write a param in place and have no results; every other
node is pure. Nodes are built through `Builder`, which infers the types of results at once.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.quantization import Quantization
from pockengine.compiler.ir.recomputation import Recomputation
from pockengine.compiler.ir.types import DType, TensorType
from pockengine.errors import GraphError

LOSS = "loss"
"""Name of the output that training minimizes."""

Attrs = Mapping[str, Any]


@dataclass(eq=False)
class Value:
    """One SSA name. Identity is the object: two values are never equal."""

    name: str
    type: TensorType
    node: "Node | None" = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value's type."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Element type of the value's type."""
        return self.type.dtype

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(eq=False)
class Node:
    """One application of an op. `scope` is its module path in the user's model.

    `recomputes` is the node whose results this one computes a second time, so that the first
    results need not stay in memory.
    """

    op: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    scope: str = ""
    recomputes: "Node | None" = None

    @property
    def result(self) -> Value:
        """The only result."""
        if len(self.results) != 1:
            raise GraphError(f"{self} has {len(self.results)} results, not one")
        return self.results[0]

    def __repr__(self) -> str:
        results = ", ".join(f"%{value.name}" for value in self.results)
        operands = ", ".join(f"%{value.name}" for value in self.operands)
        place = f" in {self.scope}" if self.scope else ""
        return f"{results + ' = ' if results else ''}{self.op} {operands}{place}"


class ParamKind(enum.Enum):
    """Kind of a param: a weight, another tensor of the model, an optimizer state, or a cache.

    Buffers are a model's non-trained tensors, such as running statistics. Caches begin as zeros,
    and no file holds them.
    """

    WEIGHT = "weight"
    BUFFER = "buffer"
    OPTIMIZER = "optimizer"
    CACHE = "cache"

    @classmethod
    def default(cls, trainable: bool) -> "ParamKind":
        """Default parameter kind."""
        return cls.WEIGHT if trainable else cls.BUFFER


class Space(enum.Enum):
    """Memory of a param: one that no entry writes may stay in flash or in a mapped file."""

    CONSTANT = "constant"
    MUTABLE = "mutable"


@dataclass(eq=False)
class Param:
    """A persistent named tensor of the artifact: a weight, or a state of the program.

    `permutation` turns the framework's tensor into ours: `ours = theirs.transpose(permutation)`.
    `trainable` says whether it may train. `space` is None until a program is compiled. `source` is
    the quantization of the model's file, if it stores integers, along our dimensions. `blocks` is
    the block format of codes, with the scales in `scales_name(name)`. `quantization` is that
    with which a program stores the param as i8.
    """

    value: Value
    contents: Contents
    permutation: tuple[int, ...] | None = None
    trainable: bool = True
    kind: ParamKind = ParamKind.WEIGHT
    space: Space | None = None
    source: Quantization | None = None
    blocks: Blocks | None = None
    quantization: Quantization | None = None

    @property
    def name(self) -> str:
        """Name in the user's model."""
        return self.value.name

    @property
    def data(self) -> np.ndarray:
        """Its numbers; this may read a file."""
        return self.contents.read()

    @data.setter
    def data(self, array: np.ndarray) -> None:
        """Replace the initial numbers by others of the same type."""
        self.contents = InMemory(array)


@dataclass(eq=False)
class Graph:
    """A whole program in SSA form; see the module's first lines for its grammar.

    `checks_indices`: an index outside its axis is an error, as in most frameworks; JAX computes
    with it. `recomputation` is the cost of meeting a memory budget.
    """

    name: str
    inputs: list[Value] = field(default_factory=list)
    params: dict[str, Param] = field(default_factory=dict)
    constants: dict[Value, np.ndarray] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: dict[str, Value] = field(default_factory=dict)
    checks_indices: bool = True
    recomputation: Recomputation | None = None

    def users(self) -> dict[Value, list[Node]]:
        """Nodes that read each value, in order; values without a reader are absent."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for operand in dict.fromkeys(node.operands):
                found.setdefault(operand, []).append(node)
        return found

    def param_of(self, value: Value) -> Param | None:
        """The param of this value, if it is one."""
        param = self.params.get(value.name)
        return param if param is not None and param.value is value else None

    def recomputed(self) -> dict[Value, Value]:
        """Recomputed values, each with its second result."""
        nodes, found = set(self.nodes), dict[Value, Value]()
        for node in self.nodes:
            if (first := node.recomputes) is not None and first in nodes:
                for value, again in zip(first.results, node.results, strict=True):
                    found.setdefault(value, again)
        return found

    def input(self, name: str) -> Value:
        """The input of this name; GraphError lists the existing ones."""
        for value in self.inputs:
            if value.name == name:
                return value
        known = ", ".join(value.name for value in self.inputs)
        raise GraphError(f"graph {self.name} has no input {name!r}; it has {known or 'none'}")

    def values(self) -> Iterator[Value]:
        """Every value: inputs, params, constants, then results in order."""
        yield from self.inputs
        yield from (param.value for param in self.params.values())
        yield from self.constants
        for node in self.nodes:
            yield from node.results

    def sources(self) -> set[Value]:
        """Values without a producer: inputs, params and constants."""
        params = (param.value for param in self.params.values())
        return {*self.inputs, *params, *self.constants}


def replace_operands(nodes: Iterable[Node], replacement: Mapping[Value, Value]) -> None:
    """Make every reader of `v` read `replacement[v]`, following chains."""
    if not replacement:
        return
    for node in nodes:
        node.operands = tuple(resolve(value, replacement) for value in node.operands)


def resolve(value: Value, replacement: Mapping[Value, Value]) -> Value:
    """Follow a chain of replacements to its end; GraphError for a cycle."""
    for _ in range(len(replacement) + 1):
        if value not in replacement:
            return value
        value = replacement[value]
    raise GraphError(f"{value!r} is replaced by itself")
