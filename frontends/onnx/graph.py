"""Walk an ONNX graph and build ours from it, operator by operator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from pockengine.compiler.controls import CONTROLS
from pockengine.compiler.ir import Builder, Graph, TensorType, Value
from pockengine.errors import ImportModelError
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Layout, Tensor, framework_order, identity, plain
from pockengine.frontends.onnx.control import CONTROL, Known
from pockengine.frontends.onnx.declared import (
    attribute_of,
    check_axis,
    check_declared,
    checked_type,
    dtype_named,
    numpy_type,
    sizes_of,
)
from pockengine.frontends.onnx.emulated_types import (
    Narrow,
    declare_input,
    emulated_array,
    is_float,
    note_widened,
)
from pockengine.frontends.onnx.file import array_of
from pockengine.frontends.onnx.fold import can_fold, fold
from pockengine.frontends.onnx.inline import flat_nodes, is_control, is_known
from pockengine.frontends.onnx.older import form_of
from pockengine.frontends.onnx.ops import OnnxContext, Result, find_rule
from pockengine.frontends.onnx.reasons import KNOWN_ONLY, NO_RULE, REFUSED
from pockengine.frontends.onnx.roles import Roles
from pockengine.frontends.onnx.sequences import Item, build_sequence, is_sequence
from pockengine.frontends.onnx.uses import uses_of
from pockengine.frontends.onnx.weights import place_of
from pockengine.frontends.walker import FailedBody, GraphWalker, constant


@dataclass(frozen=True)
class Choices:
    """The user's choices: see `from_onnx`."""

    training: bool
    shapes: Mapping[str, Sequence[int]]
    constants: Mapping[str, np.ndarray]
    trainable: Mapping[str, bool]


def import_graph(model: ModelProto, folder: Path | None, choices: Choices) -> tuple[Builder, Any]:
    """Build the graph; return its builder and the outputs by name, as tensors."""
    name = model.graph.name or "model"
    importer = _Importer(model, folder, choices)
    importer.declare()
    for node in importer.nodes:
        importer.build(node)
    outputs = importer.outputs()
    importer.problems.check(name)
    _drop_unread(importer.g.graph, {tensor.value for tensor in outputs.values()})
    importer.roles.tell(importer.g.graph)
    note_widened(importer.g.graph, importer.narrow.kinds)
    return importer.g, outputs


def _drop_unread(graph: Graph, read: set[Value]) -> None:
    """Remove unread weights, such as those of a branch that is not selected."""
    read = read.union(*(node.operands for node in graph.nodes))
    for name in [name for name, param in graph.params.items() if param.value not in read]:
        del graph.params[name]


class _Importer(GraphWalker):
    """One import: the current value of each name.

    A name is known as an array, a tensor or both: `arrays` are the values known at compile time,
    initializers among them; `weights` names the arrays that become params.
    """

    damage = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)

    def __init__(self, model: ModelProto, folder: Path | None, choices: Choices) -> None:
        super().__init__(model.graph.name or "model")
        self.graph: GraphProto = model.graph
        self.nodes = flat_nodes(model)
        self.folder = folder
        self.choices = choices
        self.opsets = {
            "" if entry.domain == "ai.onnx" else entry.domain: entry.version
            for entry in model.opset_import
        }
        self.arrays: dict[str, np.ndarray] = {}
        self.tensors: dict[str, Tensor] = {}
        self.sequences: dict[str, list[Known]] = {}
        self.weights: set[str] = set()
        self.narrow = Narrow(self.opsets, self.arrays)
        self.failed: set[str] = set()
        self.uses = uses_of(self.graph, self.nodes)
        self.roles = Roles(model, self.nodes, choices.trainable)

    def declare(self) -> None:
        """Declare inputs and initializers."""
        if self.graph.sparse_initializer:
            self.problems.add("sparse initializers", "store them densely", "")
        initialized = {tensor.name for tensor in self.graph.initializer}
        known = {value.name for value in self.graph.input}
        for unknown in sorted({*self.choices.shapes, *self.choices.constants} - known):
            raise ImportModelError(
                f"the model has no input {unknown!r}; it has {', '.join(sorted(known))}"
            )
        self.roles.check()
        for value in self.graph.input:
            if value.name in self.choices.constants:
                self._attempt(value.name, lambda value=value: self._fixed(value))
            elif value.name not in initialized:
                self._attempt(value.name, lambda value=value: self._input(value))
        for tensor in self.graph.initializer:
            self._attempt(tensor.name, lambda t=tensor: self._initializer(t))

    def _attempt(self, name: str, declare: Any) -> None:
        """Declare one input or initializer, or note why not."""
        with self.noting("a tensor", name):
            declare()
            return
        self.failed.add(name)

    def _fixed(self, value: Any) -> None:
        """Use an input's value as a constant of the model."""
        dtype = numpy_type(value.type.tensor_type.elem_type)
        self.arrays[value.name] = np.asarray(self.choices.constants[value.name]).astype(dtype)

    def _input(self, value: Any) -> None:
        type_ = self._input_type(value)
        if value.name in CONTROLS:
            raise Unsupported("the training step has an input of this name; rename the model's")
        numpy = numpy_type(value.type.tensor_type.elem_type)
        self.tensors[value.name] = declare_input(self.g, value.name, numpy, type_)
        self.narrow.kinds[value.name] = numpy

    def _input_type(self, value: Any) -> TensorType:
        if value.type.WhichOneof("value") != "tensor_type":
            raise Unsupported("an input that is no tensor")
        declared = value.type.tensor_type
        sizes = sizes_of(declared)
        chosen = self.choices.shapes.get(value.name)
        if chosen is None:
            if None in sizes or not declared.HasField("shape"):
                raise Unsupported("a shape that is not fixed; give an example of this input")
            chosen = [size for size in sizes if size is not None]
        fits = not declared.HasField("shape") or (
            len(chosen) == len(sizes)
            and all(size in (None, own) for size, own in zip(sizes, chosen, strict=True))
        )
        if not fits:
            raise Unsupported(f"the shape {list(chosen)} does not fit the declared {sizes}")
        return checked_type(TensorType(dtype_named(declared.elem_type), tuple(map(int, chosen))))

    def _initializer(self, tensor: TensorProto) -> None:
        """Declare an initializer: a param if an operator reads it as more than a number."""
        name, uses = tensor.name, self.uses.get(tensor.name, [])
        if name in self.arrays or name in self.tensors:
            return
        data = array_of(tensor, self.folder)
        self.arrays[name] = data
        if not is_float(data.dtype) or data.ndim == 0 or not data.size:
            return
        if any(use.as_tensor for use in uses):
            state = any(use.is_state for use in uses)
            self._weight(name, data, not state and self.roles.trains(name, data))

    def _weight(self, name: str, data: np.ndarray, trainable: bool) -> None:
        """Create a param in the layout that all its readers prefer."""
        wishes = {use.wish for use in self.uses.get(name, [])}
        wish = wishes.pop() if len(wishes) == 1 else None
        self._param(name, data, wish if wish is not None else identity(data.ndim), trainable)

    def _param(self, name: str, data: np.ndarray, layout: Layout, trainable: bool = True) -> Tensor:
        """Create a param of an array in the framework's order."""
        if name in CONTROLS:
            raise Unsupported("the training step has an input of this name; rename the weight")
        value = self.g.param(
            name,
            np.array(emulated_array(data).transpose(layout), order="C"),
            permutation=None if layout == identity(data.ndim) else layout,
            trainable=trainable,
        )
        self.tensors[name] = Tensor(value, layout)
        self.narrow.kinds[name] = data.dtype
        self.weights.add(name)
        return self.tensors[name]

    def build(self, node: NodeProto) -> None:
        """Build one operator, or note why not."""
        place = place_of(node)
        thing = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        with self.building(thing, place):
            if not self.failed.intersection(node.input):
                self._evaluate(node, place)
                return
            if not is_known(node):
                raise Unsupported(REFUSED.get(node.op_type, NO_RULE))
        self.failed.update(name for name in node.output if name)

    def _evaluate(self, node: NodeProto, place: str) -> None:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            self._bind_constant(node.output[0], self._constant(node))
            return
        results: Sequence[Any]
        if can_fold(node) and self._all_known(node):
            arrays = [self.arrays[name] for name in node.input if name]
            results = fold(node, arrays, form_of(node, self.opsets.get("", 1)))
        elif node.op_type == "CastLike" and node.input[0] in self.arrays.keys() - self.weights:
            results = [self.arrays[node.input[0]].astype(self._type(node.input[1]))]
        elif is_control(node):
            inputs = [self._known(name) if name else None for name in node.input]
            results = CONTROL[node.op_type](self.g, node, inputs, self._body)
        elif is_sequence(node):
            inputs = [self._known(name) if name else None for name in node.input]
            results = build_sequence(self.g, node, inputs)
        else:
            results = self._apply(node, place)
        named = list(node.output)
        results = self.narrow.fitted(self.g, node, results)
        for name, result in zip(named, results, strict=False):
            if name and result is not None:
                self._bind(name, result)
        bound = self.tensors.keys() | self.arrays.keys() | self.sequences.keys()
        missing = [n for n in named if n and n not in bound]
        if missing:
            raise Unsupported(f"its output {missing[0]!r}")

    def _bind(self, name: str, known: Item) -> None:
        """Bind a name to a result; in a loop's body it may have been bound before."""
        for table in (self.arrays, self.tensors, self.sequences):
            table.pop(name, None)
        if isinstance(known, list):
            self.sequences[name] = known
        elif isinstance(known, Tensor):
            checked_type(known.value.type)
            self.tensors[name] = known
        else:
            self.arrays[name] = known

    def _bind_constant(self, name: str, data: np.ndarray) -> None:
        """Bind a name to numbers of the file; a weight only once, also in a loop."""
        if name in self.weights and np.array_equal(self.arrays[name], data):
            return
        if name in self.weights:
            raise Unsupported(f"two weights named {name!r}; rename one")
        self._bind(name, data)
        if is_float(data.dtype) and data.ndim and data.size:
            state = any(use.is_state for use in self.uses.get(name, []))
            trains = not state and self.roles.trains_as_constant(name, data)
            if state or trains:
                self._weight(name, data, trains)

    def _known(self, name: str) -> Any:
        """Return an array for a constant that is not a weight, else a tensor or a list."""
        if name in self.arrays and name not in self.weights:
            return self.arrays[name]
        return self.sequences[name] if name in self.sequences else self._tensor(name)

    def _body(self, body: GraphProto, values: Sequence[Known]) -> list[Known]:
        """Build a nested graph in place."""
        for tensor in body.initializer:
            self._inner_initializer(tensor)
        for source, value in zip(body.input, values, strict=True):
            self._bind(source.name, value)
        for node in body.node:
            self.build(node)
        if self.failed.intersection(output.name for output in body.output):
            raise FailedBody
        return [self._known(output.name) for output in body.output]

    def _inner_initializer(self, tensor: TensorProto) -> None:
        """Register a body's initializer, each time the body is built."""
        if tensor.name not in self.weights:
            self.arrays.pop(tensor.name, None)
            self.tensors.pop(tensor.name, None)
            self._initializer(tensor)
        elif not np.array_equal(self.arrays[tensor.name], array_of(tensor, self.folder)):
            raise Unsupported(f"two weights named {tensor.name!r}; rename one")

    def _type(self, name: str) -> np.dtype:
        """Return a value's type in the file, or else its type in the graph."""
        own = self.arrays[name].dtype if name in self.arrays else self._tensor(name).dtype.numpy
        return self.narrow.kinds.get(name, own)

    def _all_known(self, node: NodeProto) -> bool:
        return all(name in self.arrays and name not in self.weights for name in node.input if name)

    def _constant(self, node: NodeProto) -> np.ndarray:
        (attribute,) = node.attribute
        if attribute.type == AttributeProto.TENSOR:
            return array_of(attribute.t, self.folder)
        if attribute.name not in ("value_float", "value_floats", "value_int", "value_ints"):
            raise Unsupported(f"a constant given by {attribute.name}")
        kind = np.float32 if "float" in attribute.name else np.int64
        return np.asarray(helper.get_attribute_value(attribute), kind)

    def _apply(self, node: NodeProto, place: str) -> Sequence[Result]:
        """Call the operator's rule."""
        rule = find_rule(node.domain, node.op_type)
        if rule is None:
            raise Unsupported(REFUSED.get(node.op_type, KNOWN_ONLY if can_fold(node) else NO_RULE))
        attributes = {attribute.name: attribute_of(attribute) for attribute in node.attribute}
        unknown = sorted(set(attributes) - rule.attributes)
        if unknown or len(node.input) > rule.most_inputs:
            raise Unsupported(f"its {'attribute ' + unknown[0] if unknown else 'further inputs'}")
        inputs = [
            None if not name else self._static(name) if i in rule.static else self._tensor(name)
            for i, name in enumerate(node.input)
        ]
        check_axis(node, attributes, inputs)
        domain = "" if node.domain == "ai.onnx" else node.domain
        context = OnnxContext(
            self.g,
            self.opsets.get(domain, 1),
            tuple(bool(name) for name in node.output),
            training=self.choices.training,
            find=self._tensor,
            weight=lambda name, data: self._attribute_weight(f"{place}.{name}", data),
        )
        built = rule.apply(context, *inputs, **attributes)
        return [built] if built is None or isinstance(built, (Tensor, np.ndarray)) else built

    def _attribute_weight(self, name: str, data: np.ndarray) -> Tensor:
        """Create a param of numbers from an attribute; only once, even in a loop."""
        if name in self.weights:
            return self.tensors[name]
        return self._param(name, data.astype(np.float32), identity(data.ndim))

    def _static(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise Unsupported(
                f"its input {name!r} must be known at compile time; make it a constant of the "
                "model, or give its value by constants={...}"
            )
        return self.arrays[name]

    def _tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            if name not in self.arrays:
                raise Unsupported(f"nothing before it makes {name!r}; are the operators in order?")
            self.tensors[name] = constant(self.g, emulated_array(self.arrays[name]))
        return self.tensors[name]

    def outputs(self) -> dict[str, Tensor]:
        """Return the graph's outputs, in the framework's order and of the declared type."""
        outputs = {}
        for value in self.graph.output:
            with self.noting(f"output {value.name}", ""):
                if value.name not in self.failed:
                    tensor = self._tensor(value.name)
                    check_declared(value, tensor)
                    outputs[value.name] = plain(framework_order(self.g, tensor))
        return outputs
