"""Walk an ONNX graph and build ours from it, operator by operator.

What cannot be imported is collected while walking, so that one error names all of it: an operator
that reads the result of a failed one is passed over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from pockengine.compiler.ir import F32, Builder, DType, Graph, TensorType
from pockengine.errors import CompileError, GraphError, ImportModelError
from pockengine.frontends.dtypes import known_dtype
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Layout, Tensor, framework_order, identity, plain
from pockengine.frontends.onnx.file import array_of
from pockengine.frontends.onnx.fold import can_fold, fold
from pockengine.frontends.onnx.inline import flat_nodes
from pockengine.frontends.onnx.ops import OnnxContext, OnnxRule, Result, find_rule
from pockengine.frontends.problems import Problems

NO_RULE = "there is no rule for it; express it by other operators"
RESERVED = {"lr", "step", "seed"}
"""Inputs that a training step has of its own."""
MAX_ELEMENTS = 2**36
"""A tensor of more elements is taken to be a mistake: 256 GiB of floats."""


@dataclass(frozen=True)
class Choices:
    """What the user says beside the model: see `from_onnx`."""

    training: bool
    shapes: Mapping[str, Sequence[int]]
    constants: Mapping[str, np.ndarray]


def import_graph(model: ModelProto, folder: Path | None, choices: Choices) -> tuple[Builder, Any]:
    """Build the graph; return its builder and the outputs by name, as tensors."""
    name = model.graph.name or "model"
    importer = _Importer(model, folder, choices)
    importer.declare()
    for node in importer.nodes:
        importer.build(node)
    outputs = importer.outputs()
    importer.problems.check(name)
    return importer.g, outputs


class _Importer:
    """One import: what each name stands for by now.

    A name is known as an array, a tensor or both: `arrays` are the values known at compile time,
    initializers among them; `weights` names those of them that become params.
    """

    def __init__(self, model: ModelProto, folder: Path | None, choices: Choices) -> None:
        self.graph: GraphProto = model.graph
        self.nodes = flat_nodes(model)
        self.folder = folder
        self.choices = choices
        self.opsets = {
            "" if entry.domain == "ai.onnx" else entry.domain: entry.version
            for entry in model.opset_import
        }
        self.g = Builder(Graph(model.graph.name or "model"))
        self.problems = Problems()
        self.arrays: dict[str, np.ndarray] = {}
        self.tensors: dict[str, Tensor] = {}
        self.weights: set[str] = set()
        self.failed: set[str] = set()

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
        for value in self.graph.input:
            if value.name in self.choices.constants:
                self.arrays[value.name] = np.asarray(self.choices.constants[value.name])
            elif value.name not in initialized:
                self._attempt(value.name, lambda value=value: self._input(value))
        uses = _uses(self.graph, self.nodes)
        for tensor in self.graph.initializer:
            name = tensor.name
            self._attempt(name, lambda t=tensor: self._initializer(t, uses.get(t.name, [])))

    def _attempt(self, name: str, declare: Any) -> None:
        """Declare one input or initializer, or note why not."""
        try:
            declare()
        except (Unsupported, GraphError) as error:
            self.failed.add(name)
            self.problems.add("a tensor", str(error), name)
        except (ArithmeticError, TypeError, ValueError) as error:
            self.failed.add(name)
            self.problems.add("a tensor", f"what the file says of it is damaged: {error}", name)

    def _input(self, value: Any) -> None:
        type_ = self._input_type(value)
        if value.name in RESERVED:
            raise Unsupported("the training step has an input of this name; rename the model's")
        self.tensors[value.name] = plain(self.g.input(value.name, type_))

    def _input_type(self, value: Any) -> TensorType:
        if value.type.WhichOneof("value") != "tensor_type":
            raise Unsupported("an input that is no tensor")
        declared = value.type.tensor_type
        sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in declared.shape.dim]
        given = self.choices.shapes.get(value.name)
        if given is None:
            if None in sizes or not declared.HasField("shape"):
                raise Unsupported(
                    f"a shape that is not fixed; say shapes={{{value.name!r}: (...)}}"
                )
            given = [size for size in sizes if size is not None]
        fits = not declared.HasField("shape") or (
            len(given) == len(sizes)
            and all(size in (None, own) for size, own in zip(sizes, given, strict=True))
        )
        if not fits:
            raise Unsupported(f"the shape {list(given)} does not fit the declared {sizes}")
        return _checked_type(TensorType(_dtype(declared.elem_type), tuple(map(int, given))))

    def _initializer(self, tensor: TensorProto, uses: Sequence["_Use"]) -> None:
        """Take in an initializer; a param where an operator reads it as more than a number."""
        if tensor.name in self.arrays or (self.g.graph and tensor.name in self.tensors):
            return
        data = array_of(tensor, self.folder)
        self.arrays[tensor.name] = data
        if data.dtype != F32.numpy or data.ndim == 0 or not data.size:
            return
        if not any(use.as_tensor for use in uses):
            return
        if tensor.name in RESERVED:
            raise Unsupported("the training step has an input of this name; rename the weight")
        wishes = {use.wish for use in uses}
        wish = wishes.pop() if len(wishes) == 1 else None
        layout = wish if wish is not None else identity(data.ndim)
        value = self.g.param(
            tensor.name,
            np.array(data.transpose(layout), order="C"),
            permutation=None if layout == identity(data.ndim) else layout,
            trainable=not any(use.is_state for use in uses),
        )
        self.tensors[tensor.name] = Tensor(value, layout)
        self.weights.add(tensor.name)

    def build(self, node: NodeProto) -> None:
        """Build one operator, or note why not."""
        place = node.name or next((name for name in node.output if name), node.op_type)
        thing = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        try:
            if not self.failed.intersection(node.input):
                with self.g.scope(place):
                    self._evaluate(node)
                return
            if find_rule(node.domain, node.op_type) is None and not can_fold(node):
                raise Unsupported(NO_RULE)
        except (GraphError, CompileError, ImportModelError) as error:
            self.problems.add(thing, str(error), place)
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            self.problems.add(thing, f"its inputs or attributes do not fit: {error}", place)
        self.failed.update(name for name in node.output if name)

    def _evaluate(self, node: NodeProto) -> None:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            results: Sequence[Result] = [self._constant(node)]
        elif can_fold(node) and self._all_known(node):
            arrays = [self.arrays[name] for name in node.input if name]
            results = fold(node, arrays, self.opsets.get("", 1))
        else:
            results = self._apply(node)
        named = list(node.output)
        for name, result in zip(named, results, strict=False):
            if name and isinstance(result, np.ndarray):
                self.arrays[name] = result
            elif name and isinstance(result, Tensor):
                _checked_type(result.value.type)
                self.tensors[name] = result
        missing = [n for n in named if n and n not in self.tensors and n not in self.arrays]
        if missing:
            raise Unsupported(f"its output {missing[0]!r}")

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

    def _apply(self, node: NodeProto) -> Sequence[Result]:
        """Call the operator's rule."""
        rule = find_rule(node.domain, node.op_type)
        if rule is None:
            raise Unsupported(NO_RULE)
        attributes = {attribute.name: _attribute(attribute) for attribute in node.attribute}
        unknown = sorted(set(attributes) - rule.attributes)
        if unknown or len(node.input) > rule.most_inputs:
            raise Unsupported(f"its {'attribute ' + unknown[0] if unknown else 'further inputs'}")
        inputs = [
            None if not name else self._static(name) if i in rule.static else self._tensor(name)
            for i, name in enumerate(node.input)
        ]
        _check_axis(node, attributes, inputs)
        domain = "" if node.domain == "ai.onnx" else node.domain
        context = OnnxContext(
            self.g,
            self.opsets.get(domain, 1),
            tuple(bool(name) for name in node.output),
            self.choices.training,
            self._tensor,
        )
        built = rule.apply(context, *inputs, **attributes)
        return [built] if built is None or isinstance(built, (Tensor, np.ndarray)) else built

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
            data = self.arrays[name]
            if not data.size:
                raise Unsupported(f"{name!r} is empty")
            dtype = _dtype_of(data)
            self.tensors[name] = plain(
                self.g.constant(data) if data.ndim else self.g.scalar(data.item(), dtype)
            )
        return self.tensors[name]

    def outputs(self) -> dict[str, Tensor]:
        """Return the graph's outputs, in the framework's order and of the declared type."""
        outputs = {}
        for value in self.graph.output:
            try:
                if value.name not in self.failed:
                    tensor = self._tensor(value.name)
                    _check_declared(value, tensor)
                    outputs[value.name] = plain(framework_order(self.g, tensor))
            except (Unsupported, GraphError) as error:
                self.problems.add("an output", str(error), value.name)
        return outputs


@dataclass(frozen=True)
class _Use:
    """How one operator reads an initializer."""

    as_tensor: bool
    is_state: bool
    wish: Layout | None


def _uses(graph: GraphProto, nodes: Sequence[NodeProto]) -> dict[str, list[_Use]]:
    """Return who reads each name, and how."""
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    uses: dict[str, list[_Use]] = {}
    for node in nodes:
        rule = find_rule(node.domain, node.op_type)
        for index, name in enumerate(node.input):
            if name in ranks:
                uses.setdefault(name, []).append(_use(node, rule, index, ranks[name]))
    for output in graph.output:
        if output.name in ranks:
            uses.setdefault(output.name, []).append(_Use(True, False, None))
    return uses


def _use(node: NodeProto, rule: OnnxRule | None, index: int, rank: int) -> _Use:
    if rule is None:
        return _Use(True, False, None)
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    wish = rule.wish(rank, attributes) if index == 1 else None
    if wish is not None and len(wish) != rank:
        wish = None
    return _Use(index not in rule.static, index in rule.states, wish)


def _check_axis(node: NodeProto, attributes: Mapping[str, Any], inputs: Sequence[Any]) -> None:
    """Refuse an axis that the first input does not have; Flatten may stop behind the last."""
    axis, first = attributes.get("axis"), inputs[0] if inputs else None
    if isinstance(first, Tensor) and isinstance(axis, int):
        end = first.rank + (node.op_type == "Flatten")
        if not -first.rank <= axis < end:
            raise Unsupported(f"axis {axis} of a tensor of {first.rank} dimensions")


def _attribute(attribute: AttributeProto) -> Any:
    """Return an attribute as a Python value."""
    if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        raise Unsupported("a graph inside of it; unroll or flatten the model")
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if attribute.type == AttributeProto.STRINGS:
        return [part.decode(errors="replace") for part in value]
    if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS):
        return list(value)
    return value


def _dtype(code: int) -> DType:
    known = code in TensorProto.DataType.values()
    name = TensorProto.DataType.Name(code) if known else code
    try:
        numpy = helper.tensor_dtype_to_np_dtype(code)
    except (KeyError, ValueError):
        numpy = None
    return known_dtype(np.void if numpy is None else numpy, f"elements of type {name}")


def _dtype_of(data: np.ndarray) -> DType:
    return known_dtype(data.dtype, f"elements of type {data.dtype}")


def _checked_type(type_: TensorType) -> TensorType:
    if type_.size > MAX_ELEMENTS:
        raise Unsupported(f"a tensor of shape {list(type_.shape)} is absurdly large")
    return type_


def _check_declared(value: Any, tensor: Tensor) -> None:
    """Compare an output with what the file says of it, as far as it says anything."""
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in declared.shape.dim]
    fits = len(sizes) == tensor.rank and all(
        size in (None, own) for size, own in zip(sizes, tensor.shape, strict=True)
    )
    if not fits or (declared.elem_type and _dtype(declared.elem_type) is not tensor.dtype):
        raise Unsupported(
            f"the file declares the shape {sizes}, but it is {tensor.dtype.value}"
            f"{list(tensor.shape)}"
        )
