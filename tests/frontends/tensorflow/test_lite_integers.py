"""Int8 TFLite files: every tensor equals the interpreter's bit for bit, and they train in int8."""

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import pockengine
from pockengine.backends.registry import open_session
from pockengine.errors import CompileError, ImportModelError
from pockengine.frontends.tensorflow.lite.file import FileTensor
from pockengine.tests.frontends.tensorflow.int8_files import check_file, int8_file

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


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return int8_file(small_net(), tmp_path_factory.mktemp("lite") / "net.tflite")


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
