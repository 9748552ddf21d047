"""TFLite models: float ones as they are, int8 ones as the real numbers that they stand for.

Quantised weights are imported dequantised, and the rounding of activations is left out: training
happens in floats. Or, with `integers`, it happens in the file's integers (rounding.py). A model
converted for one sample is imported for the batch of the example inputs.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir import BOOL, F32, I32, I64, Builder, Graph, TensorType
from pockengine.compiler.passes.dead_code import dead_code
from pockengine.errors import CompileError, GraphError, ImportModelError
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Layout, Tensor, framework_order, identity, plain
from pockengine.frontends.losses import LOSSES, add_loss
from pockengine.frontends.problems import EMPTY, NO_RULE, Problems
from pockengine.frontends.tensorflow.lite.file import LiteModel, LiteOperator, read_lite
from pockengine.frontends.tensorflow.lite.ops import LITE_RULES
from pockengine.frontends.tensorflow.lite.rounding import held_as, integer_input, rounded
from pockengine.frontends.tensorflow.ops import Known, TfContext
from pockengine.frontends.tensorflow.variables import RESERVED, dtype_of

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
"""What flatbuffers, NumPy and our rules raise for numbers that do not fit."""
_KINDS = {"FLOAT32": F32, "INT32": I32, "INT64": I64, "BOOL": BOOL}


def from_lite(path: Path, example_inputs: Any, loss: Any, integers: bool = False) -> Graph:
    """Import a .tflite file; ImportModelError lists whatever has no equivalent.

    With `integers`, weights and activations have the ranges of the file, which must be in int8.
    """
    if loss is not None and loss not in LOSSES:
        raise ImportModelError(
            f"a TFLite model takes a loss of every frontend, {' or '.join(LOSSES)}, not {loss!r}"
        )
    model = read_lite(path)
    try:
        return _imported(model, example_inputs, loss, integers)
    except DAMAGE as error:
        raise ImportModelError(
            f"{path} is damaged: its parts do not fit together: {error}; convert the model again"
        ) from error


def _imported(model: LiteModel, example_inputs: Any, loss: Any, integers: bool) -> Graph:
    importer = _Importer(model, integers)
    importer.declare(example_inputs)
    for operator in importer.model.operators:
        importer.build(operator)
    outputs = importer.outputs()
    importer.problems.check(importer.model.name)
    g = importer.g
    if loss is not None and not outputs:
        raise ImportModelError(f"{model.name} has no output that a loss could judge")
    if loss is not None:
        add_loss(g, next(iter(outputs.values())), loss)
    for name, tensor in outputs.items():
        g.output(name, framework_order(g, tensor))
    dead_code(g.graph)
    if integers and not any(param.held for param in g.graph.params.values()):
        raise ImportModelError(
            f"{model.name} has no int8 weights; calibrate it: quantize=pockengine.Int8({{...}})"
        )
    return g.graph


class _Importer:
    """One import: what each tensor's number stands for by now."""

    def __init__(self, model: LiteModel, integers: bool) -> None:
        self.model = model
        self.integers = integers
        self.g = Builder(Graph(model.name))
        self.problems = Problems()
        self.known: dict[int, Known] = {}
        self.failed: set[int] = set()
        self.wishes = _wishes(model)

    def declare(self, given: Any) -> None:
        """Declare the inputs, in the shapes of the examples."""
        names = [self.model.name_of(number) for number in self.model.inputs]
        if not isinstance(given, Mapping):
            listed = given if isinstance(given, (list, tuple)) else [given]
            given = dict(zip(names, listed, strict=False))
        if sorted(given) != sorted(names):
            raise ImportModelError(
                f"{self.model.name} has the inputs {', '.join(names)}; give an example for each"
            )
        for number, name in zip(self.model.inputs, names, strict=True):
            shape = np.shape(given[name])
            try:
                self.known[number] = self._input(number, shape)
            except (Unsupported, GraphError) as error:
                self.failed.add(number)
                self.problems.add("an input", str(error), name)

    def _input(self, number: int, shape: tuple[int, ...]) -> Tensor:
        tensor, name = self.model.tensors[number], self.model.name_of(number)
        if name in RESERVED:
            raise Unsupported("the training step has an input of this name; rename the model's")
        if len(shape) != len(tensor.shape) or shape[1:] != tensor.shape[1:]:
            raise Unsupported(f"the example of shape {shape} for the declared {tensor.shape}")
        dtype = F32 if tensor.quantised else _KINDS.get(tensor.kind)
        if self.integers and (given := integer_input(self.g, name, shape, tensor)) is not None:
            return plain(given)
        if dtype is None:
            raise Unsupported(f"numbers of {tensor.kind}; use FLOAT32, INT32, INT64 or BOOL")
        return plain(self.g.input(name, TensorType(dtype, shape)))

    def build(self, operator: LiteOperator) -> None:
        """Build one operator, or note why not."""
        place = self.model.tensors[operator.outputs[0]].name if operator.outputs else ""
        try:
            if not self.failed.intersection(operator.inputs):
                with self.g.scope(place):
                    self._evaluate(operator)
                return
            if operator.name not in LITE_RULES:
                raise Unsupported(NO_RULE)
        except (CompileError, GraphError, ImportModelError) as error:
            self.problems.add(operator.name, str(error), place)
        except DAMAGE as error:
            reason = f"its inputs or options do not fit: {error}"
            self.problems.add(operator.name, reason, place)
        self.failed.update(operator.outputs)

    def _evaluate(self, operator: LiteOperator) -> None:
        rule = LITE_RULES.get(operator.name)
        if rule is None:
            raise Unsupported(NO_RULE)
        inputs = [
            None
            if number < 0
            else self._static(number)
            if position in rule.static
            else self._tensor(number)
            for position, number in enumerate(operator.inputs)
        ]
        built = rule.apply(TfContext(self.g, ()), operator.options, *inputs)
        results = built if isinstance(built, (list, tuple)) else [built]
        for number, result in zip(operator.outputs, results, strict=True):
            tensor = self.model.tensors[number]
            rounds = self.integers and isinstance(result, Tensor)
            self.known[number] = rounded(self.g, result, tensor) if rounds else result

    def _static(self, number: int) -> np.ndarray:
        data = self.model.tensors[number].data
        if data is None:
            raise Unsupported("a shape, axis or place that is computed; it must be a constant")
        return data

    def _tensor(self, number: int) -> Tensor:
        """Return what is known by now, or a constant of the file.

        Converters store equal vectors once. Each reader gets one of its own, since biases that were
        equal once must not train as one; larger weights stay shared.
        """
        if number in self.known:
            return self.known[number]
        constant = self._constant(number)
        if constant.rank != 1:
            self.known[number] = constant
        return constant

    def _constant(self, number: int) -> Tensor:
        """Take in what the file holds: floats of one dimension or more become params."""
        tensor = self.model.tensors[number]
        if tensor.data is None:
            raise Unsupported(f"nothing before it makes {tensor.name!r}")
        data = tensor.real()
        dtype = dtype_of(data)
        if not data.size:
            raise Unsupported(EMPTY)
        if not data.ndim:
            return plain(self.g.scalar(data.item(), dtype))
        if dtype is not F32:
            return plain(self.g.constant(data))
        layout = self.wishes.get(number, identity(data.ndim))
        value = self.g.param(
            self._free_name(tensor.name),
            np.array(data.transpose(layout), order="C"),
            permutation=None if layout == identity(data.ndim) else layout,
        )
        source, held = tensor.quantization(), held_as(tensor)
        param = self.g.graph.params[value.name]
        param.source = source and source.transposed(layout)
        if self.integers and held is not None and number in self.wishes:
            param.held = held.transposed(layout)
        return Tensor(value, layout)

    def _free_name(self, name: str) -> str:
        free, count = name, 0
        while free in self.g.graph.params or free in RESERVED:
            count += 1
            free = f"{name}_{count}"
        return free

    def outputs(self) -> dict[str, Tensor]:
        """Return the outputs by their names."""
        outputs = {}
        for number in self.model.outputs:
            name = self.model.name_of(number)
            try:
                if number not in self.failed:
                    outputs[name] = self._tensor(number)
            except (Unsupported, GraphError) as error:
                self.problems.add("an output", str(error), name)
        return outputs


def _wishes(model: LiteModel) -> dict[int, Layout]:
    """Return the order in which each weight is best held, where all its readers agree."""
    wishes: dict[int, set[Layout]] = {}
    for operator in model.operators:
        rule = LITE_RULES.get(operator.name)
        for position, number in enumerate(operator.inputs):
            if rule is not None and number >= 0:
                rank = len(model.tensors[number].shape)
                wish = rule.wishes.get(position, identity(rank))
                wishes.setdefault(number, set()).add(wish if len(wish) == rank else identity(rank))
    return {number: layouts.pop() for number, layouts in wishes.items() if len(layouts) == 1}
