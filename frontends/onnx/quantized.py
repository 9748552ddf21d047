"""Import int8 ONNX models as real-valued ones: QDQ pairs, and operators on integers.

QuantizeLinear becomes `Round` (ops/integers.py), DequantizeLinear nothing, and what it reads of the
file a float initializer of the same name; the quantizations are returned beside it. An operator
that is not understood raises ImportModelError with its name and place.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from pockengine.compiler.ir.quantization import Quantization
from pockengine.errors import GraphError, ImportModelError
from pockengine.frontends.faults import check_own
from pockengine.frontends.integer_weights import WIDTHS, IntegerWeight, integer_weight
from pockengine.frontends.onnx.dynamic import DYNAMIC
from pockengine.frontends.onnx.file import array_of
from pockengine.frontends.onnx.ops.integers import OWN_DOMAIN
from pockengine.frontends.onnx.weights import place_of


@dataclass(frozen=True)
class IntegerForm:
    """An operator on integers: its real equivalent, and the positions of its inputs.

    Each of `operands` begins three inputs: integers, scale, zero point; `axis` is that of a second
    operand's scales. The scale and zero point of the result begin at `result`.
    """

    real: str
    operands: tuple[int, int]
    result: int
    bias: int | None = None
    axis: int = 0


FORMS = {
    "QGemm": IntegerForm("Gemm", (0, 3), 7, bias=6),
    "QLinearAdd": IntegerForm("Add", (0, 3), 6),
    "QLinearConv": IntegerForm("Conv", (0, 3), 6, bias=8),
    "QLinearMatMul": IntegerForm("MatMul", (0, 3), 6, axis=-1),
}

OPERATORS = frozenset({"QuantizeLinear", "DequantizeLinear", *FORMS})
MOVES = frozenset(
    {"Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators whose results have the range of their first input."""

Range = tuple[float, int]


@dataclass
class _Rewriter:
    """One model: its arrays, the integers of its weights, and the ranges of its activations."""

    model: ModelProto
    folder: Path | None
    integers: bool
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    floats: dict[str, np.ndarray] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    weights: dict[str, IntegerWeight] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Rewrite the model in place."""
        graph = self.model.graph
        for tensor in graph.initializer:
            self.arrays[tensor.name] = array_of(tensor, self.folder)
        nodes: list[NodeProto] = []
        for source in graph.node:
            for node in self._expanded(source):
                node.input[:] = [self.renamed.get(name, name) for name in node.input]
                nodes += self._rewritten(node)
        del graph.node[:]
        graph.node.extend(nodes)
        tensors = [tensor for tensor in graph.initializer if tensor.name not in self.floats]
        del graph.initializer[:]
        graph.initializer.extend(tensors)
        graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in self.floats.items())
        self._outputs()

    def _outputs(self) -> None:
        """Replace outputs by the real numbers of their integers."""
        for output in self.model.graph.output:
            name = self.renamed.get(output.name, output.name)
            if name != output.name:
                self.model.graph.node.append(helper.make_node("Identity", [name], [output.name]))
            if name in self.ranges:
                output.type.tensor_type.elem_type = TensorProto.FLOAT

    def _rewritten(self, node: NodeProto) -> Iterable[NodeProto]:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            self.arrays[node.output[0]] = array_of(node.attribute[0].t, self.folder)
        if node.op_type == "QuantizeLinear":
            return self._quantize(node)
        if node.op_type == "DequantizeLinear":
            return self._dequantize(node)
        if node.op_type in MOVES and node.input[0] in self.ranges:
            self.ranges[node.output[0]] = self.ranges[node.input[0]]
        return [node]

    def _quantize(self, node: NodeProto) -> list[NodeProto]:
        """Round an activation, or a weight that the file has as floats."""
        source, result = node.input[0], node.output[0]
        if source in self.arrays:
            scale, zero, axis = self._parts(node, self.arrays[source].ndim)
            limits = np.iinfo(zero.dtype)
            shape = [1] * self.arrays[source].ndim
            if scale.size > 1:
                shape[axis] = scale.size
            nearest = np.rint(self.arrays[source] / scale.reshape(shape)) + zero.reshape(shape)
            self.arrays[result] = np.clip(nearest, limits.min, limits.max).astype(zero.dtype)
            self.origin[result] = source
            return []
        self.ranges[result] = self._range(node)
        attributes = dict(zip(("scale", "zero"), self.ranges[result], strict=True))
        attributes["integers"] = int(self.integers)
        name = node.name or place_of(node)
        rounding = helper.make_node(
            "Round", [source], [result], name=name, domain=OWN_DOMAIN, **attributes
        )
        return [rounding]

    def _dequantize(self, node: NodeProto) -> Iterable[NodeProto]:
        """Bind the integers' name to the real numbers; dequantize those of a weight or an input."""
        source, result = node.input[0], node.output[0]
        if source in self.arrays:
            self.renamed[result] = self._weight(node)
            return []
        if source in {value.name for value in self.model.graph.input}:
            return self._of_input(node)
        if source not in self.ranges:
            raise _refused(node, "nothing says which range the integers have that it reads")
        if self.ranges[source] != self._range(node):
            raise _refused(node, "its range is another than that of the integers it reads")
        self.renamed[result] = source
        return []

    def _of_input(self, node: NodeProto) -> Iterator[NodeProto]:
        """Compute the real numbers of an input that is passed as integers."""
        scale, zero, _ = self._parts(node, 0)
        if scale.size != 1 or not (np.isfinite(scale).all() and (scale > 0).all()):
            raise _refused(node, "an input has one scale, positive and finite")
        place, result = place_of(node), node.output[0]
        names = [f"{place}.{part}" for part in ("float", "shifted", "zero", "scale")]
        for name, number in zip(names[2:], (zero, scale), strict=True):
            value = numpy_helper.from_array(number.reshape(()).astype(np.float32))
            yield helper.make_node("Constant", [], [name], value=value)
        yield helper.make_node("Cast", [node.input[0]], names[:1], to=TensorProto.FLOAT)
        yield helper.make_node("Sub", [names[0], names[2]], names[1:2])
        yield helper.make_node("Mul", [names[1], names[3]], [result])

    def _weight(self, node: NodeProto) -> str:
        """Return the name of a float initializer with the values of the file's integers."""
        source = node.input[0]
        integers = self.arrays[source]
        scale, zero, axis = self._parts(node, integers.ndim)
        quantization = _quantization(node, integers, (scale, zero, axis))
        with np.errstate(over="ignore"):
            real = quantization.real(integers)
        if not np.isfinite(real).all():
            raise _refused(node, f"its scale {scale.max()} makes numbers beyond f32")
        name = self.origin.get(source, source)
        count = 0
        while name in self.floats and self.weights[name].quantization != quantization:
            count += 1
            name = f"{source}.{count}"
        self.floats[name] = real
        self.weights[name] = integer_weight(
            quantization, integers, in_file=source not in self.origin
        )
        return name

    def _parts(self, node: NodeProto, rank: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Return scales, zero points and their axis; all must be known. A `rank` of 0 is open."""
        names = list(node.input[1:])
        if any(name and name not in self.arrays for name in names):
            raise _refused(node, "its scale or zero point is computed; make it an initializer")
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if attributes.get("block_size"):
            raise _refused(node, "its scales are of blocks; give one for each channel")
        scale = self.arrays[names[0]]
        kind = np.int8 if node.op_type == "DequantizeLinear" else np.uint8
        zero = self.arrays[names[1]] if len(names) > 1 and names[1] else np.zeros(scale.shape, kind)
        axis = attributes.get("axis", 1)
        if rank and scale.size > 1 and not -rank <= axis < rank:
            raise _refused(node, f"a tensor of {rank} dimensions has no axis {axis}")
        return scale, zero, axis % max(rank, 1)

    def _range(self, node: NodeProto) -> Range:
        """Return the scale and the zero point, as of i8, of an activation."""
        scale, zero, _ = self._parts(node, 0)
        if scale.size != 1 or scale.dtype != np.float32 or zero.dtype not in WIDTHS:
            raise _refused(node, "an activation has one float scale, and integers of 8 bits")
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise _refused(node, f"its scale {scale.item()} is not positive and finite")
        return float(scale.item()), int(zero.item()) - WIDTHS[zero.dtype]

    def _expanded(self, node: NodeProto) -> Iterator[NodeProto]:
        """Replace an operator on integers by one on real numbers, between QDQ pairs."""
        copy = NodeProto()
        copy.CopyFrom(node)
        form = FORMS.get(node.op_type)
        if form is None and node.op_type.startswith("QLinear"):
            raise _refused(node, "unknown; quantize the model in QDQ pairs (QuantFormat.QDQ)")
        if form is None:
            yield copy
            return
        inputs = [*node.input, *[""] * (form.result + 2 - len(node.input))]
        place, reads = place_of(node), list[str]()
        for number, first in enumerate(form.operands):
            reads.append(f"{place}.{number}")
            axis = _second_axis(node, form) if number else 0
            yield _dequantized(inputs[first : first + 3], reads[-1], axis)
        if form.bias is not None and form.bias < len(inputs) and inputs[form.bias]:
            reads.append(f"{place}.bias")
            unit = self._unit(node, [inputs[first + 1] for first in form.operands])
            yield _dequantized([inputs[form.bias], unit], reads[-1], 0)
        copy.op_type, copy.domain = form.real, ""
        del copy.input[:], copy.output[:]
        copy.input.extend(reads)
        scale, zero = inputs[form.result : form.result + 2]
        copy.output.append(f"{place}.real" if scale else node.output[0])
        yield copy
        if scale:
            sources = [copy.output[0], scale, zero]
            yield helper.make_node("QuantizeLinear", sources, list(node.output), name=place)

    def _unit(self, node: NodeProto, names: Sequence[str]) -> str:
        """Return the name of a bias's scales: those of both operands multiplied."""
        names = [self.renamed.get(name, name) for name in names]
        if any(name not in self.arrays for name in names):
            raise _refused(node, "its scales are computed; make them initializers")
        unit = self.arrays[names[0]].reshape(-1) * self.arrays[names[1]].reshape(-1)
        name = f"{place_of(node)}.unit"
        self.arrays[name] = unit if unit.size > 1 else unit.reshape(())
        return name


def _second_axis(node: NodeProto, form: IntegerForm) -> int:
    """Return the dimension of a second operand's scales."""
    across = form.real == "Gemm" and not any(a.name == "transB" and a.i for a in node.attribute)
    return 1 if across else form.axis


def _dequantized(inputs: Sequence[str], result: str, axis: int) -> NodeProto:
    return helper.make_node("DequantizeLinear", inputs, [result], name=result, axis=axis)


def as_real(
    model: ModelProto, folder: Path | None, integers: bool
) -> tuple[ModelProto, dict[str, IntegerWeight]]:
    """Return a model without integers, or itself, and the quantization of its weights.

    Without `integers` activations are clamped to their ranges, but not rounded.
    """
    if not any(node.op_type in OPERATORS for node in model.graph.node):
        return model, {}
    copy = ModelProto()
    copy.CopyFrom(model)
    rewriter = _Rewriter(copy, folder, integers)
    try:
        rewriter.run()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        check_own(error, f"it read {model.graph.name}")
        raise ImportModelError(
            f"{model.graph.name}: scales and zero points do not match their tensors: {error}; "
            "quantize the model again"
        ) from error
    copy.opset_import.append(helper.make_opsetid(OWN_DOMAIN, 1))
    return copy, rewriter.weights


def rounds_activations(model: ModelProto) -> bool:
    """Whether a model computes with integers, where its import has the real numbers."""
    rounding = {DYNAMIC, *OPERATORS} - {"DequantizeLinear"}
    return any(node.op_type in rounding for node in model.graph.node)


def _quantization(
    node: NodeProto, integers: np.ndarray, parts: tuple[np.ndarray, np.ndarray, int]
) -> Quantization:
    """Return the quantization of a weight, from its scales, zero points and their axis."""
    scale, zero, axis = parts
    count = scale.size
    if integers.dtype.kind in "bfc" or scale.dtype.kind in "biu":
        raise _refused(node, f"it reads {integers.dtype} by scales of {scale.dtype}")
    if len(node.input) > 2 and node.input[2] and zero.dtype != integers.dtype:
        raise _refused(
            node, f"its zero point is of {zero.dtype}, its integers are {integers.dtype}"
        )
    if count > 1 and integers.shape[axis] != count:
        raise _refused(node, f"{count} scales along axis {axis} of {list(integers.shape)}")
    zeros = np.broadcast_to(zero.reshape(-1), (count,))
    try:
        along = axis if count > 1 else None
        return Quantization(tuple(map(float, scale.reshape(-1))), tuple(map(int, zeros)), along)
    except (GraphError, ValueError) as error:
        raise _refused(node, str(error)) from error


def _refused(node: NodeProto, why: str) -> ImportModelError:
    return ImportModelError(f"{node.op_type} in {place_of(node)}: {why}")
