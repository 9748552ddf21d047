"""Int8 TFLite files: every tensor equals the interpreter's bit for bit, and they train in int8."""

import os
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import pockengine
from pockengine.backends.registry import open_session
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.passes.integers.hold_integers import HoldIntegers
from pockengine.compiler.passes.integers.integer_arithmetic import IntegerArithmetic
from pockengine.errors import CompileError, ImportModelError
from pockengine.frontends.layout import framework_order
from pockengine.frontends.tensorflow.lite.file import FileTensor, LiteModel, read_lite
from pockengine.frontends.tensorflow.lite.importer import declare
from pockengine.frontends.tensorflow.lite.walk import OperatorWalker

SHARED = [
    "mlperf_tiny/ic_resnet8_int8",
    "mlperf_tiny/vww_mobilenet_v1_025_96_int8",
    "mcunet_int8/mcunet_vww",
]


def small_net() -> keras.Model:
    """Return a net with a residual sum, pooling, a mean, a product and a dense layer."""
    keras.utils.set_random_seed(0)
    x = keras.Input((8, 8, 3), batch_size=1)
    y = keras.layers.Conv2D(8, 3, padding="same", activation="relu6")(x)
    z = keras.layers.DepthwiseConv2D(3, padding="same", activation="relu")(y)
    y = keras.layers.Add()([y, keras.layers.Conv2D(8, 1)(z)])
    y = keras.layers.AveragePooling2D(2)(y)
    gate = keras.layers.GlobalAveragePooling2D(keepdims=True)(y)
    y = keras.layers.Multiply()([y, keras.layers.Conv2D(8, 1, activation="relu")(gate)])
    y = keras.layers.Flatten()(y)
    return keras.Model(x, keras.layers.Dense(4)(y))


def converted(folder: Path) -> Path:
    """Return the small net as an int8 file."""
    rng = np.random.default_rng(0)
    converter = tf.lite.TFLiteConverter.from_keras_model(small_net())
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: (
        [rng.standard_normal((1, 8, 8, 3)).astype(np.float32)] for _ in range(20)
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    path = folder / "net.tflite"
    path.write_bytes(converter.convert())
    return path


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return converted(tmp_path_factory.mktemp("lite"))


def interpreter_of(path: Path) -> "tf.lite.Interpreter":
    """Return an interpreter that uses reference kernels and preserves every tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = tf.lite.Interpreter(
            str(path),
            experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=True,
        )
    made.allocate_tensors()
    return made


def our_tensors(model: LiteModel, x: np.ndarray) -> dict[int, np.ndarray]:
    """Compute every quantised tensor of a file by the oracle in integer arithmetic."""
    name, whole = (
        model.name_of(model.main.inputs[0]),
        OperatorWalker(model, integers=True, chosen={}),
    )
    declare(whole, {name: x})
    whole.build(whole.main)
    for number, value in whole.main.known.items():
        tensor = model.main.tensors[number]
        if tensor.quantised and tensor.data is None:
            whole.g.output(str(number), framework_order(whole.g, value))
    graph = whole.g.graph
    HoldIntegers().run(graph)
    IntegerArithmetic().run(graph)
    return {int(number): data for number, data in run(graph, {name: x}).items()}


def check_file(path: Path) -> None:
    """Compare every tensor of a file with the interpreter's."""
    model, reference = read_lite(path), interpreter_of(path)
    (inputs,) = reference.get_input_details()
    rng = np.random.default_rng(1)
    if inputs["dtype"] == np.float32:
        x = rng.uniform(-1, 1, inputs["shape"]).astype(np.float32)
    else:
        x = rng.integers(-128, 128, inputs["shape"]).astype(np.int8)
    reference.set_tensor(inputs["index"], x)
    reference.invoke()
    found = our_tensors(model, x)
    assert len(found) > 5
    for number, real in found.items():
        tensor = model.main.tensors[number]
        integers = np.rint(real / tensor.scale[0] + int(tensor.zero[0])).astype(np.int64)
        np.testing.assert_array_equal(integers, reference.get_tensor(number), tensor.name)


def test_every_tensor_equals_the_interpreter(net: Path) -> None:
    check_file(net)


@pytest.mark.parametrize("name", SHARED)
def test_published_files_equal_the_interpreter(name: str) -> None:
    path = Path(os.environ.get("POCKENGINE_DATA", "")) / "weights" / f"{name}.tflite"
    if not path.is_file():
        pytest.skip("needs weights of POCKENGINE_DATA")
    check_file(path)


def test_an_int8_file_trains_in_int8(net: Path) -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(-128, 128, (4, 8, 8, 3)).astype(np.int8)
    compiled = pockengine.compile(
        net, (x,), loss="cross_entropy", quantize=pockengine.Int8(), optimizer="sgd"
    )
    (name,) = (value.name for value in compiled.graph.inputs if len(value.shape) == 4)
    with open_session(compiled.artifact) as session:
        batch = {name: x, "target": np.arange(4)}
        losses = [float(session.train_step(batch, lr=0.05)["loss"]) for _ in range(40)]
    assert losses[-1] < 0.9 * losses[0]
    weights = [
        param for param in compiled.program.params.values() if param.quantization is not None
    ]
    assert {param.value.dtype.value for param in weights} == {"i8"}


def test_models_without_int8_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "float.tflite"
    path.write_bytes(tf.lite.TFLiteConverter.from_keras_model(small_net()).convert())
    x = np.zeros((1, 8, 8, 3), np.float32)
    with pytest.raises(ImportModelError, match="has no int8 weights"):
        pockengine.compile(path, (x,), loss="cross_entropy", quantize=pockengine.Int8())
    with pytest.raises(ImportModelError, match=r"come from a \.tflite file"):
        pockengine.compile(small_net(), (x,), loss="cross_entropy", quantize=pockengine.Int8())
    with pytest.raises(CompileError, match="samples of nothing"):
        pockengine.compile(
            pockengine.from_tensorflow(small_net(), (x,), loss="cross_entropy"),
            (),
            quantize=pockengine.Int8(),
        )


def tensor(**changes: Any) -> FileTensor:
    """Return a weight [2, 3] of a file, with a scale for each of its three channels."""
    values = np.full((2, 3), 100, np.int8)
    scales, zeros = np.array([0.1, 0.2, 0.0], np.float32), np.zeros(3, np.int64)
    sound = {"name": "w", "kind": "INT8", "shape": (2, 3), "data": values}
    return FileTensor(**{**sound, "scale": scales, "zero": zeros, "axis": 1, **changes})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"scale": np.float32([0.1, np.nan, 1])}, "the scale nan"),
        ({"scale": np.float32([0.1, -1, 1])}, "the scale -1"),
        ({"scale": np.float32([0.1, np.inf, 1])}, "has the scale"),
        ({"scale": np.float32([0]), "zero": np.zeros(1), "data": None}, "the scale 0"),
        ({"axis": 0}, r"3 scales along dimension 0 of \[2, 3\]"),
        ({"axis": -1}, "3 scales along dimension -1"),
        ({"axis": 9}, "3 scales along dimension 9"),
        ({"zero": np.zeros(2)}, "2 zero points for 3 scales"),
        ({"zero": np.int64([0, 0, 128])}, "a zero point beyond INT8"),
        ({"zero": np.int64([-(1 << 40), 0, 0])}, "a zero point beyond INT8"),
    ],
)
def test_invalid_scales_are_refused(changes: dict[str, Any], fault: str) -> None:
    tensor().check()
    with pytest.raises(ImportModelError, match=f"tensor 'w' .*{fault}"):
        tensor(**changes).check()


def test_values_beyond_f32_are_refused() -> None:
    assert tensor().real()[0].tolist() == pytest.approx([10, 20, 0])
    with pytest.raises(ImportModelError, match="'w' holds numbers beyond f32"):
        tensor(scale=np.full(3, 3e38, np.float32)).real()
