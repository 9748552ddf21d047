"""Walk a traced TensorFlow function and build our graph from it, operator by operator."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.dtypes import find_dtype
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain
from pockengine.frontends.problems import NO_RULE
from pockengine.frontends.tensorflow.control import (
    BRANCHES,
    CALLS,
    CONTROL,
    Library,
    run_chosen,
    run_control,
)
from pockengine.frontends.tensorflow.fold import BOUNDS, fold
from pockengine.frontends.tensorflow.ops import RULES, Known, Opaque, TfContext, emulated_types
from pockengine.frontends.tensorflow.ops.complex import COMPLEX_RULES, complex_rule, is_complex
from pockengine.frontends.tensorflow.ops.truths import VALUE_SHAPE, check_truths
from pockengine.frontends.tensorflow.own_gradient import build as own_gradient
from pockengine.frontends.tensorflow.own_gradient import has_own_gradient, is_ctc_loss, sources_of
from pockengine.frontends.tensorflow.variables import Variable
from pockengine.frontends.walker import GraphWalker, complex_constant

VARIABLE_OPS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape")
ASSIGNMENTS = {"AssignVariableOp": "", "AssignAddVariableOp": "add", "AssignSubVariableOp": "sub"}
SKIPPED = ("NoOp", "Assert", "Print", "PrintV2", "VarIsInitializedOp")
COUNTS = "random counts, which take as many draws as they say; pass them as an input"
PYTHON = (
    "it calls back into Python, which a compiled model does not hold; express it by TensorFlow's "
    "operators"
)
STRINGS = "it works on strings; apply the layer to the data before, and give the model its numbers"
LOOKUPS = (
    "it looks values up in a table, which a compiled model does not hold; apply the layer to the "
    "data before, and give the model its results"
)
SPARSE_LABELS = "labels are a SparseTensor; give tf.nn.ctc_loss dense labels and their lengths"
REASONS = {
    **dict.fromkeys(
        ("Unique", "UniqueV2", "UniqueWithCounts", "DynamicPartition", "Range"),
        VALUE_SHAPE,
    ),
    **dict.fromkeys(("PyFunc", "EagerPyFunc", "PyFuncStateless"), PYTHON),
    **dict.fromkeys(("CTCLoss", "CTCLossV2"), SPARSE_LABELS),
    **dict.fromkeys(("LookupTableFind", "LookupTableFindV2", "LookupTableSizeV2"), LOOKUPS),
    **dict.fromkeys(
        ("RandomPoissonV2", "StatelessRandomBinomial", "StatelessRandomPoisson"), COUNTS
    ),
}
FOLDED = {"bool", "float32", "int32", "int64"}
"""Types of results that are computed at import if all inputs are constant."""

TRAINED_WRITE = "it changes a trainable variable; only states, such as running statistics, are kept"


class Importer(GraphWalker):
    """One import: the current value of each traced name."""

    framework = "TensorFlow"
    damage = (ArithmeticError, LookupError, TypeError, ValueError)
    packages = ("tensorflow",)

    def __init__(self, name: str, library: Library, layers: Iterable[str]) -> None:
        """Start a graph; `layers` are the names of the model's layers, for places in errors."""
        super().__init__(name)
        self.library = library
        self.layers = frozenset(layers)
        self.written: dict[Variable, str] = {}
        """Variables that the model writes, with the place of the last write."""
        self.placeholders: dict[str, Known] = {}
        """Values of placeholders that are not inputs of their function."""

    def run(self, graph: Any, arguments: Sequence[Known], place: str) -> list[Known]:
        """Build a function's body; return the values of its results."""
        known: dict[str, Known] = dict(
            zip((source.name for source in graph.inputs), arguments, strict=True)
        )
        self._build_all(_needed(graph), known, place)
        return [known[output.name] for output in graph.outputs]

    def extend(
        self, graph: Any, tensors: Sequence[Any], known: dict[str, Known], place: str
    ) -> None:
        """Build the missing dependencies of further tensors of a function."""
        waiting, needed = [tensor.op for tensor in tensors], set()
        while waiting:
            op = waiting.pop()
            if op.name not in needed and not all(output.name in known for output in op.outputs):
                needed.add(op.name)
                waiting.extend(source.op for source in sources_of(op))
        self._build_all([op for op in graph.get_operations() if op.name in needed], known, place)

    def _build_all(self, operators: Sequence[Any], known: dict[str, Known], place: str) -> None:
        for op in operators:
            for output, result in zip(op.outputs, self._build(op, known, place), strict=False):
                known.setdefault(output.name, result)

    def _build(self, op: Any, known: dict[str, Known], function: str) -> Sequence[Known]:
        """Build one operator, or note why not; one result for each output."""
        with self.building(op.type, self.place(f"{function}/{op.name}")):
            values = [known[source.name] for source in sources_of(op)]
            if has_own_gradient(self.g, op, values):
                results: Sequence[Known] = own_gradient(self, op, known, function)
            else:
                results = self._evaluate(op, values, function)
            self._check(op, results)
            return results
        return [Opaque()] * len(op.outputs)

    def _evaluate(self, op: Any, values: Sequence[Known], function: str) -> Sequence[Known]:
        if op.type in SKIPPED:
            return []
        if op.type == "Placeholder":
            return [self.placeholders[op.name]]
        if op.type == "Const":
            return [tf.make_ndarray(op.get_attr("value"))]
        if op.type in ASSIGNMENTS:
            return self._assign(op, values[0], values[1], self.place(f"{function}/{op.name}"))
        if op.type in BRANCHES and isinstance(values[0], Tensor):
            return self._choose(op, values, function)
        if op.type in BRANCHES and isinstance(values[0], Opaque):
            return [values[0]] * len(op.outputs)
        if op.type in CONTROL:
            return run_control(op, values, self.library, run=self.run, place=function)
        return self._compute(op, values)

    def _choose(self, op: Any, values: Sequence[Known], function: str) -> Sequence[Known]:
        """Take the results of the branch that a tensor names."""

        def branch(body: Any, arguments: Sequence[Known]) -> list[Known]:
            return self.run(body, arguments, function)

        return run_chosen(op, values, self.library, run=branch, tensor=self.tensor, g=self.g)

    def _compute(self, op: Any, values: Sequence[Known]) -> Sequence[Known]:
        """Build an operator without effects by its rule, or compute it now."""
        rule = RULES.get(op.type) or COMPLEX_RULES.get(op.type)
        if rule is None and op.type not in VARIABLE_OPS and op.type not in BOUNDS:
            raise Unsupported(_no_rule(op))
        for index, value in enumerate(values):
            if isinstance(value, Opaque) and not (rule and index in rule.ignored):
                return [value] * len(op.outputs)
        if op.type in VARIABLE_OPS:
            return [self._read(op, *values)]
        if op.type in BOUNDS and all(isinstance(value, np.ndarray) for value in values):
            return fold(op, values)
        if rule is None:
            raise Unsupported(_no_rule(op))
        if op.type not in BOUNDS and all(isinstance(value, np.ndarray) for value in values):
            return self._known(op, values)
        return self._apply(op, values)

    def _known(self, op: Any, values: Sequence[Known]) -> Sequence[Known]:
        """Evaluate an operator on constants if its results have static shapes; else build it."""
        shapes = [_static_shape(output) for output in op.outputs]
        plain_types = all(output.dtype.name in FOLDED for output in op.outputs)
        if None in shapes or not plain_types or op.op_def.is_stateful or "Random" in op.type:
            return self._apply(op, values)
        return fold(op, values, sum(math.prod(shape or ()) for shape in shapes))

    def _apply(self, op: Any, values: Sequence[Known]) -> Sequence[Known]:
        rule = RULES.get(op.type) or COMPLEX_RULES[op.type]
        static = {index if index >= 0 else len(values) + index for index in rule.static}
        emulated_types.checked(op)
        check_truths(op, values)
        inputs = [
            None
            if index in rule.ignored
            else _static(value)
            if index in static
            else value
            if index in rule.either
            else self.tensor(
                emulated_types.emulated(value) if isinstance(value, np.ndarray) else value
            )
            for index, value in enumerate(values)
        ]
        if is_complex(inputs) or any(output.dtype.is_complex for output in op.outputs):
            return self._apply_complex(op, inputs)
        shapes = tuple(_static_shape(output) for output in op.outputs)
        attributes = {name: _attribute(op, name) for name in rule.attributes if _has(op, name)}
        results = rule.apply(TfContext(self.g, shapes), *inputs, **attributes)
        fitted = emulated_types.wrapped(self.g, op, results)
        return fitted if isinstance(fitted, (list, tuple)) else [fitted]

    def _apply_complex(self, op: Any, inputs: Sequence[Known]) -> Sequence[Known]:
        """Call the operator's rule for pairs of real numbers."""
        shapes = tuple(_static_shape(output) for output in op.outputs)
        rule = complex_rule(op.type)
        attributes = {name: _attribute(op, name) for name in rule.attributes if _has(op, name)}
        results = rule.apply(TfContext(self.g, shapes), *inputs, **attributes)
        return results if isinstance(results, (list, tuple)) else [results]

    def _read(self, op: Any, variable: Known, *indices: Known) -> Known:
        """Read a variable, or its rows."""
        if not isinstance(variable, Variable):
            raise Unsupported("it reads a resource that is no variable of the model")
        value = variable.read(self.g)
        if op.type == "VariableShape":
            return np.array(variable.data.shape, np.int32)
        if isinstance(value, Opaque) or not indices:
            return value
        if op.type == "ResourceGatherNd":
            table, index = self.tensor(value), self.tensor(indices[0])
            return RULES["GatherNd"].apply(TfContext(self.g, ()), table, index)
        if op.type == "ResourceGather":
            table, rows = framework_order(self.g, self.tensor(value)), self.tensor(indices[0])
            return plain(self.g.take(table, framework_order(self.g, rows), axis=0))
        return value

    def _assign(self, op: Any, variable: Known, value: Known, place: str) -> list[Known]:
        """Record a write; later reads return the new value."""
        if not isinstance(variable, Variable):
            raise Unsupported("it writes a resource that is no variable of the model")
        if variable.data.dtype != F32.numpy:
            return []  # a counter: its readers are rejected when they read it
        if variable.trainable:
            raise Unsupported(TRAINED_WRITE)
        if isinstance(value, Opaque):
            if value.reason:
                raise Unsupported(value.reason)
            return []
        new = self.tensor(value)
        sign = ASSIGNMENTS[op.type]
        if sign:
            new = emit.elementwise(self.g, sign, self.tensor(variable.read(self.g)), new)
        variable.read(self.g)  # declares the param
        variable.current = new
        self.written[variable] = place
        return []

    def write_states(self) -> None:
        """Append the writes of states, after all readers of the old values."""
        for variable, place in self.written.items():
            state = self.g.graph.params[variable.name].value
            with self.g.scope(place):
                value = framework_order(self.g, variable.current)
                if value is not state:
                    self.g.emit("assign", state, value)

    def tensor(self, value: Known) -> Known:
        """Add compile-time values to the graph; pass everything else."""
        if isinstance(value, Opaque):
            raise Unsupported(value.reason)
        if isinstance(value, np.ndarray) and np.iscomplexobj(value):
            return complex_constant(self.g, value)
        return super().tensor(value)

    def place(self, path: str) -> str:
        """Return the layers that contain an operator, by the user's names.

        Keras numbers the scopes of one trace on (`dense_1` of the layer `dense`).
        """
        parts = []
        for part in path.strip("/").split("/")[:-1]:
            if part.startswith(CALLS):
                continue
            stem, _, number = part.rpartition("_")
            known = part not in self.layers and number.isdigit() and stem in self.layers
            parts.append(stem if known else part)
        return "/".join(parts)

    def output(self, name: str, value: Known) -> Tensor | None:
        """Return one of the function's results as a tensor, or record why it cannot be one."""
        failed = isinstance(value, Opaque) and not value.reason
        return None if failed else super().output(name, value)

    def _check(self, op: Any, results: Sequence[Known]) -> None:
        """Compare the built values with TensorFlow's shapes and types, where known."""
        for output, result in zip(op.outputs, results, strict=False):
            if isinstance(result, Tensor):
                shape, name = _static_shape(output), output.dtype.name
                dtype = find_dtype(emulated_types.EMULATED.get(name, name))
                self.check_result(result, shape, dtype, f"{name}{list(shape or ())}")


def _needed(graph: Any) -> list[Any]:
    """Return the operators that results or writes depend on, in order."""
    waiting = [output.op for output in graph.outputs]
    losses = [op.name for op in graph.get_operations() if is_ctc_loss(op)]
    within = tuple(f"{name.rpartition('/')[0]}/" for name in losses if "/" in name)
    waiting += [
        op for op in graph.get_operations() if _has_effect(op) and not op.name.startswith(within)
    ]
    needed = set()
    while waiting:
        op = waiting.pop()
        if op.name not in needed:
            needed.add(op.name)
            waiting.extend(source.op for source in sources_of(op))
    inputs = {source.op.name for source in graph.inputs}
    return [op for op in graph.get_operations() if op.name in needed and op.name not in inputs]


def _has_effect(op: Any) -> bool:
    return op.type in ASSIGNMENTS or (op.type in CONTROL and not op.type.startswith("Stateless"))


def _no_rule(op: Any) -> str:
    """Return why an operator has no rule."""
    if op.type in REASONS:
        return REASONS[op.type]
    if any(value.dtype == tf.string for value in (*op.inputs, *op.outputs)):
        return STRINGS
    known = hasattr(tf.raw_ops, op.type)
    return NO_RULE if known else f"it is no operator of TensorFlow's own; {NO_RULE}"


def _static(value: Known) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise Unsupported(
            "a shape, axis or place that is computed from values in a tensor; shapes must be known "
            "at compile time"
        )
    return value


def _has(op: Any, name: str) -> bool:
    return any(attribute.name == name for attribute in op.op_def.attr)


def _attribute(op: Any, name: str) -> Any:
    """Return an attribute as a Python value; types as NumPy's."""
    value = op.get_attr(name)
    if isinstance(value, bytes):
        return value.decode()
    return value.as_numpy_dtype if isinstance(value, tf.DType) else value


def _static_shape(output: Any) -> tuple[int, ...] | None:
    shape = output.shape
    return tuple(shape.as_list()) if shape.is_fully_defined() else None


def library_of(graph: Any) -> Library:
    """Return the functions that a traced graph calls."""
    definitions = graph.as_graph_def().library.function
    known: Mapping[str, Any] = {d.signature.name: d for d in definitions}
    return Library(known)
