"""Element types other than float32, int32, int64 and bool; lists of tensors."""

import warnings

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import pockengine
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.halves import without_halves
from pockengine.frontends.onnx.model import from_onnx, to_initializers
from pockengine.tests.frontends.onnx.models import random

node = helper.make_node
Arrays = dict[str, np.ndarray]


def typed(
    nodes: list[NodeProto],
    inputs: Arrays,
    output: int = TensorProto.FLOAT,
    weights: Arrays | None = None,
    opset: int = 20,
) -> ModelProto:
    """Build a model whose inputs have the examples' types; its output is `y`."""
    arguments = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in inputs.items()
    ]
    params = [numpy_helper.from_array(data, name) for name, data in (weights or {}).items()]
    result = helper.make_tensor_value_info("y", output, None)
    graph = helper.make_graph(nodes, "typed", arguments, [result], params)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def found_in(model: ModelProto, inputs: Arrays) -> np.ndarray:
    """Return the oracle's result; inputs are cast to the graph's types."""
    graph = from_onnx(model)
    types = {value.name: value.type.dtype.numpy for value in graph.inputs}
    return np.asarray(run(graph, {n: x.astype(types[n]) for n, x in inputs.items()})["y"])


def net(dtype: type, code: int) -> tuple[ModelProto, Arrays]:
    """A layer, a clip to constants, a cast, and a scale computed from constants."""
    weights: Arrays = {
        "w": random(8, 4).astype(dtype), "b": random(4).astype(dtype), "two": dtype(2),
        "low": dtype(-1), "high": dtype(1),
    }  # fmt: skip
    nodes = [
        node("Gemm", ["x", "w", "b"], ["a"]),
        node("Clip", ["a", "low", "high"], ["c"]),
        node("Cast", ["c"], ["d"], to=code),
        node("Mul", ["two", "two"], ["four"]),
        node("Mul", ["d", "four"], ["y"]),
    ]
    inputs: Arrays = {"x": random(3, 8, seed=1).astype(dtype)}
    return typed(nodes, inputs, code, weights), inputs


@pytest.mark.parametrize(
    ("dtype", "code"), [(np.float16, TensorProto.FLOAT16), (np.float64, TensorProto.DOUBLE)]
)
def test_floats_of_other_sizes_train_as_float32(dtype: type, code: int) -> None:
    model, inputs = net(dtype, code)

    with pytest.warns(UserWarning, match=rf"tensors of {np.dtype(dtype)}: .* as float32"):
        compiled = pockengine.compile(model, inputs, loss="mse", check=True)

    (expected,) = ReferenceEvaluator(without_halves(model, None)).run(
        None, {"x": inputs["x"].astype(np.float32)} if dtype is np.float16 else inputs
    )
    found = run(from_onnx(model), {"x": inputs["x"].astype(np.float32)})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    tuned = to_initializers(model, compiled.graph, {"b": np.full(4, 0.1, np.float32)})
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in tuned.graph.initializer}
    assert weights["b"].dtype == dtype
    assert weights["b"][0] == dtype(np.float32(0.1))
    ReferenceEvaluator(tuned).run(None, inputs)


def test_a_program_accepts_f16_and_bytes_unchanged() -> None:
    model, inputs = net(np.float16, TensorProto.FLOAT16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = pockengine.compile(model, inputs, loss="mse").session()
    halves = session.predict(inputs)["y"]
    images = {"x": np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2) * 10}
    nodes = [
        node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), node("Div", ["f", "most"], ["g"]),
        node("Flatten", ["g"], ["h"]), node("MatMul", ["h", "w"], ["y"]),
    ]  # fmt: skip
    weights = {"most": np.float32(255), "w": random(12, 4)}
    photos = typed(nodes, images, weights=weights)
    pictures = pockengine.compile(photos, images, loss="mse", check=True).session()

    np.testing.assert_allclose(halves, found_in(model, inputs), rtol=1e-5)
    (expected,) = ReferenceEvaluator(photos).run(None, images)
    np.testing.assert_allclose(pictures.predict(images)["y"], expected, rtol=1e-5, atol=1e-5)


WRAPPING: dict[str, tuple[list[NodeProto], Arrays]] = {
    "uint8": ([node("Add", ["x", "x"], ["i"])], {"x": np.uint8([100, 200, 3])}),
    "int8": ([node("Mul", ["x", "x"], ["i"])], {"x": np.int8([100, -100, 3])}),
    "int16": ([node("Sub", ["x", "k"], ["i"])], {"x": np.int16([-32768, 5]), "k": np.int16([9])}),
    "uint16": ([node("Sub", ["x", "k"], ["i"])], {"x": np.uint16([3, 9]), "k": np.uint16([9])}),
    "uint32": ([node("Mul", ["x", "x"], ["i"])], {"x": np.uint32([70_000, 5])}),
    "cast": ([node("Cast", ["x"], ["i"], to=TensorProto.UINT8)], {"x": np.int64([300, -1])}),
    "bits": (
        [node("BitShift", ["x", "k"], ["i"], direction="LEFT")],
        {"x": np.uint8([200, 3]), "k": np.uint8([1, 2])},
    ),
    "like a tensor": (
        [
            node("Constant", [], ["f"], value_float=300.0),
            node("CastLike", ["f", "x"], ["h"]),
            node("Add", ["x", "h"], ["i"]),
        ],
        {"x": np.int16([32_767, 5])},
    ),
    "uint64": (
        [
            node("Cast", ["x"], ["u"], to=TensorProto.UINT64),
            node("Gather", ["k", "h"], ["p"]),
            node("Concat", ["u", "p"], ["i"], axis=0),
        ],
        {"x": np.uint8([200]), "k": np.uint64([2**40, 7]), "h": np.int64([1, 0])},
    ),
    "moved": (
        [node("Transpose", ["x"], ["t"], perm=[1, 0]), node("Equal", ["t", "t"], ["i"])],
        {"x": np.uint8([[1, 2], [3, 4]])},
    ),
    "resized": (
        [node("Constant", [], ["s"], value_floats=[2.0]), node("Resize", ["x", "", "s"], ["i"])],
        {"x": np.uint8([1, 200])},
    ),
}


@pytest.mark.parametrize("name", WRAPPING)
def test_small_integers_wrap(name: str) -> None:
    nodes, inputs = WRAPPING[name]
    model = typed([*nodes, node("Cast", ["i"], ["y"], to=TensorProto.FLOAT)], inputs)

    (expected,) = ReferenceEvaluator(model).run(None, inputs)
    np.testing.assert_array_equal(found_in(model, inputs), expected)


def test_possible_overflow_of_signed_integers_is_refused() -> None:
    small = {"x": np.uint64([1, 2])}
    large: Arrays = {"k": np.uint64([2**63, 1])}
    picked = [node("Gather", ["k", "i"], ["y"])]

    for model in (
        typed([node("Sub", ["x", "x"], ["y"])], small, TensorProto.UINT64),
        typed(picked, {"i": np.int64([0])}, TensorProto.UINT64, large),
    ):
        with pytest.raises(ImportModelError, match="cast them to int64 before"):
            from_onnx(model)


def test_operators_undefined_for_small_integers_are_refused() -> None:
    nodes = [
        node("Constant", [], ["s"], value_floats=[2.0]),
        node("Resize", ["x", "", "s"], ["y"], mode="linear"),
    ]
    with pytest.raises(ImportModelError, match="interpolating between i32; cast it to float"):
        from_onnx(typed(nodes, {"x": np.uint8([1, 200])}, TensorProto.UINT8))


def test_an_input_of_integers_is_dequantized() -> None:
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["r"]), node("MatMul", ["r", "w"], ["y"])]
    weights: Arrays = {"s": np.float32(0.1), "z": np.uint8(3), "w": random(4, 3)}
    inputs = {"x": np.uint8([[1, 200, 3, 0]])}
    model = typed(nodes, inputs, weights=weights)

    (expected,) = ReferenceEvaluator(model).run(None, inputs)
    np.testing.assert_allclose(found_in(model, inputs), expected, rtol=1e-5, atol=1e-5)


SEQUENCES: dict[str, list[NodeProto]] = {
    "made, joined": [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("ConcatFromSequence", ["s"], ["y"], axis=1),
    ],
    "rows, taken": [
        node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0),
        node("SequenceAt", ["s", "last"], ["y"]),
    ],
    "parts, of one size": [
        node("SplitToSequence", ["x", "two"], ["s"], axis=1),
        node("SequenceErase", ["s", "zero"], ["t"]),
        node("ConcatFromSequence", ["t"], ["y"], axis=1),
    ],
    "inserted, stacked": [
        node("Neg", ["x"], ["n"]),
        node("SequenceEmpty", [], ["e"]),
        node("SequenceInsert", ["e", "x"], ["s"]),
        node("SequenceInsert", ["s", "n", "zero"], ["t"]),
        node("ConcatFromSequence", ["t"], ["y"], axis=0, new_axis=1),
    ],
    "counted": [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SequenceLength", ["s"], ["n"]),
        node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["x", "f"], ["y"]),
    ],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_are_resolved_at_import(name: str) -> None:
    inputs = {"x": random(2, 5)}
    places: Arrays = {"last": np.int64(-1), "two": np.int64(2), "zero": np.int64(0)}
    model = typed(SEQUENCES[name], inputs, weights=places)

    (expected,) = ReferenceEvaluator(model).run(None, inputs)
    np.testing.assert_allclose(found_in(model, inputs), expected)


def one_bag() -> GraphProto:
    """Return a loop body that appends the sum of some rows to a sequence."""
    return helper.make_graph(
        [
            node("Gather", ["bounds", "i"], ["from"]),
            node("Add", ["i", "one"], ["next"]),
            node("Gather", ["bounds", "next"], ["to"]),
            node("Unsqueeze", ["from", "axis"], ["start"]),
            node("Unsqueeze", ["to", "axis"], ["stop"]),
            node("Slice", ["rows", "start", "stop"], ["bag"]),
            node("ReduceSum", ["bag", "axis"], ["total"], keepdims=1),
            node("SequenceInsert", ["bags", "total"], ["more"]),
            node("Identity", ["go"], ["on"]),
        ],
        "step",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_sequence_value_info("bags", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_sequence_value_info("more", TensorProto.FLOAT, None),
        ],
    )


def test_a_bag_of_embeddings_loops_over_a_sequence() -> None:
    """PyTorch's exporter writes a loop that scales rows by ones and appends one bag per step."""
    nodes = [
        node("Gather", ["table", "x"], ["plain"]),
        node("Mul", ["plain", "ones"], ["rows"]),
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["three", "", "none"], ["all"], body=one_bag()),
        node("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]
    weights: Arrays = {
        "table": random(10, 4), "ones": np.ones((7, 1), np.float32), "one": np.int64(1),
        "bounds": np.int64([0, 3, 5, 7]), "axis": np.int64([0]), "three": np.int64(3),
    }  # fmt: skip
    inputs = {"x": np.int64([1, 4, 1, 9, 0, 2, 2])}
    model = typed(nodes, inputs, weights=weights)

    with pytest.warns(UserWarning, match="ones do not .an exporter's ones for the rows"):
        graph = from_onnx(model)

    totals = np.add.reduceat(weights["table"][inputs["x"]], [0, 3, 5])
    np.testing.assert_allclose(run(graph, inputs)["y"], totals, rtol=1e-6)
    assert [name for name, param in graph.params.items() if param.trainable] == ["table"]


def test_hardmax_of_older_opsets_flattens_the_last_dimensions() -> None:
    inputs = {"x": random(2, 3, 4)}
    model = typed([node("Hardmax", ["x"], ["y"])], inputs, opset=11)

    flat = inputs["x"].reshape(2, 12)
    expected = (np.arange(12) == flat.argmax(1)[:, None]).astype(np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(found_in(model, inputs), expected)


def test_affine_grid_and_unique_constants() -> None:
    inputs = {"t": random(2, 2, 3)}
    weights: Arrays = {"size": np.int64([2, 3, 6, 7]), "numbers": np.int64([5, 1, 5, 3])}
    nodes = [
        node("AffineGrid", ["t", "size"], ["grid"]),
        node("Unique", ["numbers"], ["u", "", "back"], sorted=1),
        node("Gather", ["u", "back"], ["same"]),
        node("ReduceSum", ["same"], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["f"], to=TensorProto.FLOAT),
        node("Add", ["grid", "f"], ["y"]),
    ]
    model = typed(nodes, inputs, weights=weights)

    (expected,) = ReferenceEvaluator(model).run(None, inputs)
    np.testing.assert_allclose(found_in(model, inputs), expected, rtol=1e-5, atol=1e-5)
