"""Walk a TFLite file's subgraphs and build our graph, operator by operator.

Compile-time values stay NumPy arrays: integers of the file, shapes, and values computed from these.
Branches are selected and loops unrolled if the condition is constant.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from pockengine.compiler.ir import Builder, Graph, Shape
from pockengine.compiler.ir.evaluate import run as evaluate
from pockengine.errors import ImportModelError
from pockengine.frontends.bounds import MAX_ELEMENTS
from pockengine.frontends.choices import Decisions
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Layout, Tensor, framework_order, identity
from pockengine.frontends.problems import EMPTY, NO_RULE
from pockengine.frontends.tensorflow.lite.control import CONTROL
from pockengine.frontends.tensorflow.lite.file import FileOperator, LiteGraph, LiteModel
from pockengine.frontends.tensorflow.lite.registry import (
    LITE_RULES,
    LiteContext,
    LiteRule,
    in_graph,
)
from pockengine.frontends.tensorflow.lite.roles import (
    STATISTICS,
    ZEROS,
    bare_tensors,
    is_statistic,
)
from pockengine.frontends.tensorflow.lite.rounding import rounded, weight_quantization
from pockengine.frontends.tensorflow.ops import Known
from pockengine.frontends.tensorflow.variables import RESERVED
from pockengine.frontends.walker import FailedBody, GraphWalker

DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
    struct.error,
)
"""Exceptions of flatbuffers, NumPy and our rules for numbers that do not fit; see `check_own`."""
MOST_DEPTH = 32
"""Subgraphs within subgraphs; each is a few calls of Python."""

Declared = tuple[tuple[Shape, ...], tuple[Shape, ...], tuple[str, ...]]


@dataclass(eq=False)
class Frame:
    """One run of a subgraph: the current value of each tensor."""

    index: int
    graph: LiteGraph
    wishes: dict[int, Layout]
    known: dict[int, Known] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    bare: set[int] = field(default_factory=set)
    """Tensors that are inputs, or inputs after arithmetic with constants."""


@dataclass(frozen=True)
class TensorReader:
    """A reader of a tensor: the operator's position, and the index of the input."""

    position: int = -1
    place: int = -1
    operator: FileOperator | None = None

    @property
    def is_bias(self) -> bool:
        """Whether it is added to a layer's result."""
        rule = None if self.operator is None else LITE_RULES.get(self.operator.name)
        return rule is not None and rule.bias == self.place


class OperatorWalker(GraphWalker):
    """One import. `rows` is by how much the batch is larger than that which the file is for."""

    damage = DAMAGE

    def __init__(self, model: LiteModel, integers: bool, chosen: Mapping[str, bool]) -> None:
        super().__init__(model.name)
        self.model = model
        self.integers = integers
        self.rows = 1
        self.depth = 0
        self.variables: dict[str, Known] = {}
        self.decisions = Decisions(chosen)
        self.main = self._frame(0)
        self.main.bare = bare_tensors(self.main.graph)
        self._params: dict[tuple[int, ...], Tensor] = {}

    def _frame(self, index: int) -> Frame:
        graph = self.model.graphs[index]
        return Frame(index, graph, _wishes(graph))

    def run(self, index: int, arguments: Sequence[Known]) -> list[Known]:
        """Build another subgraph; return the values of its results."""
        if self.depth == MOST_DEPTH:
            raise ImportModelError(f"{self.model.name} is damaged: its parts run each other")
        frame = self._frame(index)
        frame.known.update(zip(frame.graph.inputs, arguments, strict=True))
        self.depth += 1
        self.build(frame)
        self.depth -= 1
        if frame.failed.intersection(frame.graph.outputs):
            raise FailedBody
        return [self.value(frame, number) for number in frame.graph.outputs]

    def build(self, frame: Frame) -> None:
        """Build the operators of a subgraph, or note why not."""
        for position, operator in enumerate(frame.graph.operators):
            self._build(frame, position, operator)

    def _build(self, frame: Frame, position: int, operator: FileOperator) -> None:
        place = frame.graph.tensors[operator.outputs[0]].name if operator.outputs else ""
        with self.building(operator.name, place):
            if not frame.failed.intersection(operator.inputs):
                self._evaluate(frame, position, operator)
                return
            if operator.name not in LITE_RULES and operator.name not in CONTROL:
                raise Unsupported(NO_RULE)
        frame.failed.update(operator.outputs)

    def _evaluate(self, frame: Frame, position: int, operator: FileOperator) -> None:
        values = [
            None
            if number < 0
            else self.value(frame, number, TensorReader(position, place, operator))
            for place, number in enumerate(operator.inputs)
        ]
        try:
            results = self._results(operator, frame.graph, values)
        except (AttributeError, TypeError) as error:
            if operator.options is not None:
                raise
            raise Unsupported(f"the file lacks its options: {error}") from error
        for number, result in zip(operator.outputs, results, strict=True):
            tensor = frame.graph.tensors[number]
            rounds = self.integers and isinstance(result, Tensor)
            frame.known[number] = rounded(self.g, result, tensor) if rounds else result

    def _results(
        self, operator: FileOperator, graph: LiteGraph, values: Sequence[Known]
    ) -> Sequence[Known]:
        if operator.name in CONTROL:
            return CONTROL[operator.name](self, operator.options, values)
        rule = LITE_RULES.get(operator.name)
        if rule is None:
            raise Unsupported(NO_RULE)
        rule.check(values)
        if values and all(isinstance(x, np.ndarray) for x in values):
            return _folded(rule, operator, _context(graph, operator), values)
        return self._applied(rule, operator, graph, values)

    def _applied(
        self, rule: LiteRule, operator: FileOperator, graph: LiteGraph, values: Sequence[Known]
    ) -> list[Known]:
        inputs = [rule.as_operand(place, x, self.tensor) for place, x in enumerate(values)]
        context = LiteContext(self.g, (), self.rows, *_context(graph, operator))
        built = rule.apply(context, operator.options, *inputs)
        results = list(built) if isinstance(built, (list, tuple)) else [built]
        for number, result in zip(operator.outputs, results, strict=True):
            if self.rows != 1 and not self._is_grown(graph.tensors[number].shape, result.shape):
                raise context.fixed(result.shape)
        return results

    def _is_grown(self, declared: Shape, found: Shape) -> bool:
        """Whether sizes are those that the file declares, except that of the rows."""
        batch = self.model.main.tensors[self.model.main.inputs[0]].shape[:1]
        pairs = enumerate(zip(declared, found, strict=True))
        grown = [(dim, old, new) for dim, (old, new) in pairs if old != new]
        if len(grown) > 1:
            return False
        return all(
            new == old * self.rows and (not dim or (old,) == batch) for dim, old, new in grown
        )

    def _is_state(self, reader: TensorReader) -> bool:
        """Whether a loop changes this input: such a constant is not a weight."""
        if reader.operator is None or reader.operator.name != "WHILE":
            return False
        body = self.model.graphs[reader.operator.options.BodySubgraphIndex()]
        return body.inputs[reader.place] != body.outputs[reader.place]

    def value(self, frame: Frame, number: int, reader: TensorReader | None = None) -> Known:
        """Return the current value of a tensor, or a constant of the file.

        Converters store equal vectors once. Each reader gets one of its own, since biases that were
        equal once must not train as one; larger weights stay shared.
        """
        if number in frame.known:
            return frame.known[number]
        reader = reader or TensorReader()
        tensor = frame.graph.tensors[number]
        if tensor.state:
            return None
        if tensor.data is None:
            raise Unsupported(f"nothing before it makes {tensor.name!r}")
        real = tensor.quantized or tensor.data.dtype.kind == "f"
        if tensor.data.ndim == 0 or not real or self._is_state(reader):
            return tensor.real()
        own = (reader.position, reader.place) if tensor.data.ndim == 1 else ()
        key = (frame.index, number, *own)
        if key not in self._params:
            self._params[key] = self._param(frame, number, reader)
        return self._params[key]

    def _param(self, frame: Frame, number: int, reader: TensorReader) -> Tensor:
        """Register the file's floats as a param.

        A bias of zeros stays so: converters add one to a convolution that has none.
        """
        tensor = frame.graph.tensors[number]
        data = tensor.real()
        if not data.size:
            raise Unsupported(EMPTY)
        layout = frame.wishes.get(number, identity(data.ndim))
        name = self._free_name(tensor.name)
        long = sum(size > 1 for size in data.shape)
        reason = ""
        if is_statistic(reader.operator, number, frame.bare, long):
            reason = STATISTICS
        elif reader.is_bias and not data.any():
            reason = ZEROS
        value = self.g.param(
            name,
            np.array(data.transpose(layout), order="C"),
            permutation=None if layout == identity(data.ndim) else layout,
            trainable=self.decisions.decide(name, reason),
        )
        source, integer = tensor.quantization(), weight_quantization(tensor)
        param = self.g.graph.params[value.name]
        param.source = source and source.transposed(layout)
        if self.integers and integer is not None and number in frame.wishes:
            param.quantization = integer.transposed(layout)
        return Tensor(value, layout)

    def _free_name(self, name: str) -> str:
        free, count = name, 0
        while free in self.g.graph.params or free in RESERVED:
            count += 1
            free = f"{name}_{count}"
        return free

    def tensor(self, value: Known) -> Tensor:
        """Add compile-time values to the graph; pass everything else."""
        return in_graph(self.g, value)

    def outputs(self) -> dict[str, Tensor]:
        """Return the model's outputs by their names."""
        outputs = {}
        for number in self.main.graph.outputs:
            name = self.model.name_of(number)
            with self.noting(f"output {name}", ""):
                if number not in self.main.failed:
                    outputs[name] = self.tensor(self.value(self.main, number))
        return outputs


def _context(graph: LiteGraph, operator: FileOperator) -> Declared:
    """Return the shapes of an operator's inputs and results, and the types of these."""
    shapes = tuple(() if n < 0 else graph.tensors[n].shape for n in operator.inputs)
    results = [graph.tensors[n] for n in operator.outputs]
    return shapes, tuple(x.shape for x in results), tuple(x.kind for x in results)


def _folded(
    rule: LiteRule, operator: FileOperator, declared: Declared, values: Sequence[Known]
) -> list[Known]:
    """Evaluate an operator on constants: build it alone, and evaluate that."""
    g = Builder(Graph("constants"))
    inputs = [rule.as_operand(place, x, partial(in_graph, g)) for place, x in enumerate(values)]
    built = rule.apply(LiteContext(g, (), 1, *declared), operator.options, *inputs)
    results = list(built) if isinstance(built, (list, tuple)) else [built]
    for place, result in enumerate(results):
        if isinstance(result, Tensor):
            g.output(str(place), framework_order(g, result))
    elements = sum(value.type.size for node in g.graph.nodes for value in node.results)
    if elements > MAX_ELEMENTS:
        raise Unsupported(f"a constant of {elements} elements; make it an input of the model")
    computed = evaluate(g.graph, {})
    return [computed.get(str(place), result) for place, result in enumerate(results)]


def _wishes(graph: LiteGraph) -> dict[int, Layout]:
    """Return the best layout of each weight, where all its readers agree."""
    wishes: dict[int, set[Layout]] = {}
    for operator in graph.operators:
        rule = LITE_RULES.get(operator.name)
        for position, number in enumerate(operator.inputs):
            if rule is not None and number >= 0:
                rank = len(graph.tensors[number].shape)
                wish = rule.wishes.get(position, identity(rank))
                wishes.setdefault(number, set()).add(wish if len(wish) == rank else identity(rank))
    return {number: layouts.pop() for number, layouts in wishes.items() if len(layouts) == 1}
