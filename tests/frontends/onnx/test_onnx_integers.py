"""Int8 ONNX models: the forward pass equals ONNX Runtime's integer arithmetic bit for bit."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import pockengine
from pockengine.backends.registry import open_session
from pockengine.check import CheckWarning
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.passes.integers.hold_integers import HoldIntegers
from pockengine.compiler.passes.integers.integer_arithmetic import IntegerArithmetic
from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.model import from_onnx, to_initializers


class Rows(CalibrationDataReader):
    """A calibration reader of random pictures, one at a time."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.left: Iterator[Mapping[str, np.ndarray]] = (
            {"x": rng.standard_normal((2, 3, 12, 12)).astype(np.float32)} for _ in range(8)
        )

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        return next(self.left, None)


def float_net(residual: bool) -> onnx.ModelProto:
    """Return a net with dense and depthwise convolutions, a Gemm, and optionally a residual sum."""
    rng, weights = np.random.default_rng(0), list[onnx.TensorProto]()

    def weight(name: str, *shape: int) -> str:
        data = rng.standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
        weights.append(numpy_helper.from_array(data.astype(np.float32), name))
        return name

    make = helper.make_node
    nodes = [
        make("Conv", ["x", weight("w1", 8, 3, 3, 3), weight("b1", 8)], ["c1"], strides=[2, 2]),
        make("Relu", ["c1"], ["r1"]),
        make(
            "Conv", ["r1", weight("w2", 8, 1, 3, 3), weight("b2", 8)], ["c2"], group=8, pads=[1] * 4
        ),
        make("Relu", ["c2"], ["r2"]),
        make("Conv", ["r2", weight("w3", 8, 8, 1, 1), weight("b3", 8)], ["c3"]),
    ]
    last = "c3"
    if residual:
        nodes.append(make("Add", ["c3", "r1"], ["a"]))
        last = "a"
    nodes += [
        make("MaxPool", [last], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        make("Flatten", ["m"], ["f"]),
        make("Gemm", ["f", weight("w4", 5, 32), weight("b4", 5)], ["logits"], transB=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 12, 12])
    y = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [2, 5])
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def quantized(
    folder: Path,
    kind: QuantType,
    form: QuantFormat,
    *,
    residual: bool = False,
    narrow: bool = False,
) -> Path:
    """Quantize the net with ONNX Runtime's own tool, with 7-bit weights if `narrow`."""
    inputs, made = folder / "float.onnx", folder / "int8.onnx"
    onnx.save(float_net(residual), inputs)
    quantize_static(
        inputs,
        made,
        Rows(),
        quant_format=form,
        activation_type=kind,
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=narrow,
        extra_options={"WeightSymmetric": True},
    )
    return made


def by_onnxruntime(path: Path, x: np.ndarray, *, narrow: bool = False) -> np.ndarray:
    """Return ONNX Runtime's logits, with all its fusions and exact sums.

    On an x86 CPU without VNNI it adds pairs of products u8 * s8 in 16 bits, which saturate. Its
    quantization guide names two remedies: an option that selects kernels without saturation, and
    7-bit weights, whose sums fit. `narrow` selects the latter.
    """
    options = onnxruntime.SessionOptions()
    if not narrow:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"x": x})
    return np.asarray(logits)


def by_us(graph: Graph, x: np.ndarray) -> np.ndarray:
    """Return the oracle's logits in integer arithmetic."""
    HoldIntegers().run(graph)
    IntegerArithmetic(rounding="float").run(graph)
    assert "i8" in {value.dtype.value for value in graph.values()}
    return run(graph, {"x": x})["logits"]


@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize("residual", [False, True])
def test_the_forward_pass_equals_onnxruntime(
    tmp_path: Path, kind: QuantType, form: QuantFormat, residual: bool
) -> None:
    # The option makes weights u8, and ONNX Runtime has no QGemm of u8 weights and s8 activations.
    narrow = (kind, form) == (QuantType.QInt8, QuantFormat.QOperator)
    path = quantized(tmp_path, kind, form, residual=residual, narrow=narrow)
    x = np.random.default_rng(2).standard_normal((2, 3, 12, 12)).astype(np.float32)
    graph = from_onnx(path, integers=True)
    np.testing.assert_array_equal(by_us(graph, x), by_onnxruntime(path, x, narrow=narrow))


def test_without_integers_the_model_is_the_float_one(tmp_path: Path) -> None:
    """The two differ by rounding alone."""
    path = quantized(tmp_path, QuantType.QInt8, QuantFormat.QDQ, residual=True)
    x = np.random.default_rng(2).standard_normal((2, 3, 12, 12)).astype(np.float32)
    graph = from_onnx(path)
    assert all(param.quantization is None for param in graph.params.values())
    logits = run(graph, {"x": x})["logits"]
    np.testing.assert_allclose(logits, by_onnxruntime(path, x), atol=0.2)


def test_it_trains_in_int8_and_exports_int8(tmp_path: Path) -> None:
    path = quantized(tmp_path, QuantType.QInt8, QuantFormat.QDQ, residual=True)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 3, 12, 12)).astype(np.float32)
    batch = {"x": x, "target": np.array([1, 3])}
    compiled = pockengine.compile(
        path, (x,), loss="cross_entropy", quantize=pockengine.Int8(), scheme="full"
    )
    with open_session(compiled.artifact) as session:
        losses = [float(session.train_step(batch, lr=0.02)["loss"]) for _ in range(20)]
        tuned = compiled.tuned(session)
        logits = session.predict({"x": x})["logits"]
    assert losses[-1] < 0.7 * losses[0]
    kinds = {tensor.name: tensor.data_type for tensor in tuned.graph.initializer}
    before = {tensor.name: tensor.data_type for tensor in onnx.load(path).graph.initializer}
    assert kinds == before
    again = tmp_path / "tuned.onnx"
    onnx.save(tuned, again)
    # The file stores biases as integers, ours are floats: they differ by up to one step.
    np.testing.assert_allclose(logits, by_onnxruntime(again, x), atol=0.05)


def test_an_unknown_operator_on_integers_is_named() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("QLinearSigmoid", [*"qszsz"], ["r"], name="sig", domain="com.microsoft"),
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    model = model_of(nodes, {"s": np.float32(0.1), "z": np.int8(0)})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ImportModelError, match=r"QLinearSigmoid in sig: unknown; .*QDQ"):
        from_onnx(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"axis": 0, "scale": [0.1, 0.2, 0.3]}, "an activation has one float scale"),
        ({"scale": [0.0]}, "is not positive and finite"),
        ({"other": 0.2}, "DequantizeLinear in dq: its range is another than that"),
        ({"read": "x"}, "DequantizeLinear in dq: nothing says which range"),
    ],
)
def test_invalid_quantization_names_operator_and_location(
    change: dict[str, Any], message: str
) -> None:
    scale = np.array(change.get("scale", [0.1]), np.float32)
    zero = np.zeros(scale.shape, np.int8)
    weights = {"s": scale, "z": zero, "t": np.float32(change.get("other", 0.1)), "u": np.int8(0)}
    read = "q"
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q", axis=1),
        helper.make_node("DequantizeLinear", [read, "t", "u"], ["y"], name="dq"),
    ]
    if "read" in change:
        nodes[1:] = [
            helper.make_node("Neg", ["q"], ["n"]),
            helper.make_node("DequantizeLinear", ["n", "t", "u"], ["y"], name="dq"),
        ]
    with pytest.raises(ImportModelError, match=message):
        from_onnx(model_of(nodes, weights))


WEIGHT = np.ones((3, 4), np.int8)


@pytest.mark.parametrize(
    ("weight", "scale", "zero", "axis", "message"),
    [
        (WEIGHT, [np.nan], np.int8(0), 1, "must be positive and finite"),
        (WEIGHT, [-0.1], np.int8(0), 1, "must be positive and finite"),
        (100 * WEIGHT, [3e38], np.int8(0), 1, "its scale 3.*e\\+38 makes numbers beyond f32"),
        (WEIGHT, [0.1] * 3, np.zeros(3, np.int8), 1, r"3 scales along axis 1 of \[3, 4\]"),
        (WEIGHT, [0.1] * 4, np.zeros(4, np.int8), 9, "a tensor of 2 dimensions has no axis 9"),
        (WEIGHT, [0.1], np.int64(300), 1, "its zero point is of int64, its integers are int8"),
        (WEIGHT.astype("f4"), [0.1], np.float32(0), 1, "it reads float32 by scales of float32"),
    ],
)
def test_scales_must_match_their_weight(
    weight: np.ndarray, scale: list[float], zero: np.ndarray, axis: int, message: str
) -> None:
    weights = {"w": weight, "s": np.array(scale, np.float32), "z": np.asarray(zero)}
    if len(scale) == 1:
        weights["s"] = weights["s"].reshape(())
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"], name="dq", axis=axis),
        helper.make_node("MatMul", ["x", "v"], ["y"]),
    ]
    with pytest.raises(ImportModelError, match=f"DequantizeLinear in dq: .*{message}"):
        from_onnx(model_of(nodes, weights))


def test_an_integer_product_needs_the_zero_point_of_its_operand() -> None:
    """Without the zero point the product differs."""
    weights = {"w": WEIGHT, "s": np.float32(0.1)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        helper.make_node("MatMulInteger", ["q", "w", "qz"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["qs", "s"], ["scale"]),
        helper.make_node("Mul", ["f", "scale"], ["y"]),
    ]
    from_onnx(model_of(nodes, weights))
    nodes[1] = helper.make_node("MatMulInteger", ["q", "w"], ["i"])
    with pytest.raises(ImportModelError, match="MatMulInteger"):
        from_onnx(model_of(nodes, weights))


def model_of(nodes: list[onnx.NodeProto], initializers: dict[str, Any]) -> onnx.ModelProto:
    """Return a model with one input, x [2, 3]."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, None])
    weights = [
        numpy_helper.from_array(np.asarray(data), name) for name, data in initializers.items()
    ]
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("each_channel", [False, True])
def test_dynamic_ranges_import_as_the_float_model(tmp_path: Path, each_channel: bool) -> None:
    onnx.save(float_net(residual=True), tmp_path / "float.onnx")
    path, x = tmp_path / "dynamic.onnx", random_rows()
    kinds = ["Conv", "MatMul"]
    quantize_dynamic(tmp_path / "float.onnx", path, kinds, per_channel=each_channel)
    graph = from_onnx(path)
    found = run(graph, {"x": x})["logits"]

    # the error of rounding an activation to one of 255 steps
    np.testing.assert_allclose(found, by_onnxruntime(path, x), atol=0.02 * np.abs(found).max())
    weights = {name: param for name, param in graph.params.items() if param.source is not None}
    assert len(weights) == 4  # three convolutions, and a Gemm as a product
    assert all(param.trainable for param in weights.values())
    tuned = to_initializers(path, graph, {name: param.data for name, param in weights.items()})
    for tensor in onnx.load(path).graph.initializer:
        (same,) = (other for other in tuned.graph.initializer if other.name == tensor.name)
        np.testing.assert_array_equal(numpy_helper.to_array(same), numpy_helper.to_array(tensor))


def test_a_model_that_rounds_is_checked_by_the_oracle(tmp_path: Path) -> None:
    path = quantized(tmp_path, QuantType.QInt8, QuantFormat.QDQ, residual=False)

    with pytest.warns(CheckWarning, match="compared with the oracle alone"):
        pockengine.compile(path, (random_rows(),), loss="cross_entropy", check=True)


def random_rows() -> np.ndarray:
    """Return pictures that were not used for calibration."""
    return np.random.default_rng(2).standard_normal((2, 3, 12, 12)).astype(np.float32)


def test_a_float_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(float_net(residual=False), path)
    with pytest.raises(ImportModelError, match="has no int8 weights; calibrate it"):
        from_onnx(path, integers=True)
