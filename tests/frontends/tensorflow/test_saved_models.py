"""Models from disk: SavedModels, Keras files and TFLite files, intact and damaged."""

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import layers
from tensorflow.lite.python import schema_py_generated as schema

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.options import Training
from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow import from_tensorflow, to_weights
from pockengine.frontends.tensorflow.keras2_operators import BASIC, FOLDERS, Operator
from pockengine.frontends.tensorflow.model import open_file

X = np.random.default_rng(0).standard_normal((2, 8, 8, 3)).astype(np.float32)


def cnn(batch: int | None = None) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 3), batch, name="picture"),
            layers.Conv2D(4, 3, name="conv1"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(6.0),
            layers.DepthwiseConv2D(3, name="conv2"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4, name="middle"),
            layers.Dense(3, activation="softmax", name="head"),
        ],
        name="cnn",
    )


def first_output(graph: Graph, x: np.ndarray) -> np.ndarray:
    return next(iter(run(graph, {graph.inputs[0].name: x}).values()))


@pytest.mark.parametrize("kind", ["model.keras", "model.h5", "exported"])
def test_saved_keras_model_has_equal_outputs(kind: str, tmp_path: Path) -> None:
    model, path = cnn(), tmp_path / kind
    model.export(path, verbose=False) if kind == "exported" else model.save(path)

    graph = from_tensorflow(path, (X,), training=False)

    np.testing.assert_allclose(first_output(graph, X), model(X), rtol=1e-5, atol=1e-6)
    frozen = {name.split("/")[-1] for name, p in graph.params.items() if not p.trainable}
    assert frozen == {"moving_mean", "moving_variance"}
    assert any(name.endswith("conv1/kernel") for name in graph.params)


KERAS2 = Path(__file__).parent / "keras2"
"""Files of Keras 2, made by `write.py` in that folder."""


@pytest.mark.parametrize("name", ["net.keras", "net.h5"])
def test_a_keras_2_file_trains_as_in_keras_2(name: str) -> None:
    opened = open_file(KERAS2 / name)
    with np.load(KERAS2 / "steps.npz") as weights:
        data = {key: weights[key] for key in weights}
    losses = data.pop("losses")
    rows = data["picture"], data["words"]
    graph = from_tensorflow(opened.model, rows, loss=opened.loss)
    step = compile_program(graph, Training(), check=True).entries["train"].graph
    params = {name: param.data.copy() for name, param in step.params.items()}

    found = [run(step, data | {"lr": np.float32(0.1)}, params)["loss"] for _ in losses]

    np.testing.assert_allclose(found, losses, rtol=2e-5)


def message(**fields: bytes) -> bytes:
    """Return a protobuf message; fields are named by their numbers."""
    written = b""
    for name, content in fields.items():
        tag = int(name[1:]) << 3 | 2
        size = bytes([len(content) & 127 | 128, len(content) >> 7])
        written += bytes([tag]) + size + content
    return written


# Keras 2.15's encoding: objects with a path (3) and JSON (5).
TRAINED_BY = {
    "one": ('"loss": "mse"', {"b": "mse", "a": "mse"}),
    "per output": (
        '"loss": {"b": {"class_name": "Huber", "config": {"reduction": "auto", "delta": 0.5, "fn": '
        '"huber"}}, "a": null}, "loss_weights": {"b": 0.25}',
        None,
    ),
    "by position": ('"loss": [null, "mae"]', {"b": None, "a": "mae"}),
}


@pytest.mark.parametrize("name", TRAINED_BY)
def test_the_loss_of_a_keras_2_saved_model_is_read(name: str, tmp_path: Path) -> None:
    module = tf.Module()
    module.kernel = tf.Variable(np.ones((8, 3), np.float32), name="kernel")
    module.call = tf.function(
        lambda x: {"a": x @ module.kernel, "b": x @ module.kernel * 2.0},
        input_signature=[tf.TensorSpec([None, 8], name="x")],
    )
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.call})
    assert open_file(tmp_path).loss is None
    text, expected = TRAINED_BY[name]
    ends = '{"output_layers": [["b", 0, 0], ["a", 0, 0]]}'
    words = f'{{"name": "net", "config": {ends}, "training_config": {{{text}}}}}'
    layer = message(_3=b"root.layer-0", _5=b'{"training_config": {"loss": "mae"}}')
    root = message(_3=b"root", _4=b"_tf_keras_network", _5=words.encode())
    (tmp_path / "keras_metadata.pb").write_bytes(message(_1=layer) + message(_1=root))

    loss = open_file(tmp_path).loss

    if expected is None:
        huber, weight = loss["b"]
        assert (loss["a"], weight, float(huber([0.0], [2.0]))) == (None, 0.25, 0.875)
    else:
        assert loss == expected

    (tmp_path / "keras_metadata.pb").write_bytes(b"\x0a\xffdamaged")
    with pytest.raises(ImportModelError, match=r"keras_metadata.pb is damaged: "):
        open_file(tmp_path)


@pytest.mark.parametrize("name", ["net.keras", "net.h5"])
def test_the_loss_of_a_sequential_file_is_read(name: str, tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    model.compile("sgd", "mse")
    model.save(tmp_path / name)

    assert open_file(tmp_path / name).loss == "mse"


def test_every_allowed_function_exists() -> None:
    names = {f"{folder}.{name}" for folder, name in zip(FOLDERS, ["qr", "exp", "elu"], strict=True)}
    assert all(callable(Operator(name).function) for name in {*names, *BASIC})


def test_saved_model_of_a_module_trains(tmp_path: Path) -> None:
    class Linear(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = tf.Variable(tf.ones((4, 3)), name="weight")

        @tf.function(input_signature=[tf.TensorSpec((None, 4), name="x")])
        def __call__(self, x: Any) -> Any:
            return {"y": x @ self.weight}

    module, x = Linear(), np.ones((2, 4), np.float32)
    tf.saved_model.save(module, str(tmp_path), signatures=module.__call__)

    graph = from_tensorflow(tmp_path, {"x": x}, loss="mse")
    step = compile_program(graph, Training(), check=True).entries["train"].graph
    params = {name: param.data.copy() for name, param in graph.params.items()}
    inputs = {"x": x, "target": np.zeros((2, 3), np.float32), "lr": np.float32(0.1)}

    assert float(run(step, inputs, params)["loss"]) == 16
    np.testing.assert_allclose(params["weight"], 1 - 0.1 * 2 * 4 * 2 / 6, rtol=1e-6)


def test_a_loss_on_a_loop_with_open_rows(tmp_path: Path) -> None:
    """Recurrent layers of Keras 2 have such loops in SavedModels."""

    class Recurrent(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(tf.reshape(tf.range(16, dtype=tf.float32) / 16 - 0.5, (4, 4)))

        @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, "x")])
        def __call__(self, x: tf.Tensor) -> Any:
            def turn(i: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return i + 1, tf.tanh(state @ self.w) + x

            open_rows = [tf.TensorShape(()), tf.TensorShape((None, 4))]
            loop = (lambda i, _: i < 3, turn, [0, tf.zeros_like(x)])
            return {"y": tf.while_loop(*loop, shape_invariants=open_rows)[1]}

    model, rng = Recurrent(), np.random.default_rng(0)
    tf.saved_model.save(model, str(tmp_path), signatures=model.__call__)
    x, y = rng.standard_normal((6, 4), np.float32), np.array([0, 1, 2, 3, 0, 1])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    graph = from_tensorflow(tmp_path, {"x": x}, loss=loss)

    (target,) = (value for value in graph.inputs if value.name != "x")
    feed = {"x": x, target.name: y.astype(target.dtype.numpy)}
    params = {name: param.data for name, param in graph.params.items()}
    found = run(graph, feed, params)["loss"]
    np.testing.assert_allclose(found, loss(y, model(x)["y"]), rtol=1e-6)


def cut(path: Path, size: int = 100) -> None:
    path.write_bytes(path.read_bytes()[:size])


def rename_operator(path: Path) -> None:
    """Turn one of the graph's operators into a custom operator."""
    path.write_bytes(path.read_bytes().replace(b"Relu6", b"Relx6"))


DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "graph cut off": (
        "exported",
        lambda path: cut(path / "saved_model.pb"),
        "cannot be read as a SavedModel: .*; save it again with tf.saved_model.save",
    ),
    "graph of noise": (
        "exported",
        lambda path: (path / "saved_model.pb").write_bytes(b"noise" * 50),
        "cannot be read as a SavedModel",
    ),
    "unknown operator": (
        "exported",
        lambda path: rename_operator(path / "saved_model.pb"),
        "cannot be read as a SavedModel: .*Relx6",
    ),
    "no graph": (
        "exported",
        lambda path: (path / "saved_model.pb").unlink(),
        "is no SavedModel: it holds no saved_model.pb",
    ),
    "weights cut off": (
        "exported",
        lambda path: cut(path / "variables/variables.data-00000-of-00001"),
        "cannot be read as a SavedModel",
    ),
    "Keras file": ("model.keras", cut, r"is damaged: it is no zip file; save the model again"),
    "HDF5 file": ("model.h5", cut, r"cannot be read as a Keras model: .* model.save\(...\)"),
    "another name": (
        "model.keras",
        lambda path: path.rename(path.with_suffix(".x")),
        "no such file",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_model_is_an_error(name: str, tmp_path: Path) -> None:
    kind, damage, message = DAMAGE[name]
    path = tmp_path / kind
    cnn().export(path, verbose=False) if kind == "exported" else cnn().save(path)
    damage(path)

    with pytest.raises(ImportModelError, match=message):
        from_tensorflow(path, (X,))


@functools.cache
def lite(quantized: bool = False) -> bytes:
    """Convert the CNN for one sample; `quantized` calibrates it on the sample pictures."""
    model = cnn(batch=1)
    model.get_layer("norm").moving_mean.assign(np.full(4, 0.1, np.float32))
    for name in ("conv2", "middle"):  # equal vectors are stored once
        model.get_layer(name).bias.assign(np.full(4, 0.5, np.float32))
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if quantized:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([x[None]] for x in X)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    return converter.convert()


def interpret(data: bytes, x: np.ndarray) -> np.ndarray:
    interpreter = tf.lite.Interpreter(model_content=data)
    interpreter.allocate_tensors()
    results = []
    for sample in x:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], sample[None])
        interpreter.invoke()
        results.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0])
    return np.stack(results)


def test_tflite_model_has_equal_outputs_and_trains(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(lite())

    graph = from_tensorflow(tmp_path / "model.tflite", (X,))
    with_loss = from_tensorflow(tmp_path / "model.tflite", (X,), loss="mse")
    step = compile_program(with_loss, Training(), check=True).entries["train"].graph

    np.testing.assert_allclose(first_output(graph, X), interpret(lite(), X), rtol=1e-5, atol=1e-6)
    assert not any(node.op == "transpose" for node in graph.nodes)
    assert [value.name for value in graph.inputs] == ["picture"]
    assert sum(node.op == "sgd_update" for node in step.nodes) == len(graph.params) == 7
    shapes = {array.shape for array in to_weights(graph).values()}
    assert shapes == {(4, 3, 3, 3), (4,), (1, 3, 3, 4), (4, 4), (3, 4)}  # as in the file


def test_quantized_tflite_model_is_imported_as_floats(tmp_path: Path) -> None:
    data = lite(quantized=True)
    (tmp_path / "model.tflite").write_bytes(data)

    graph = from_tensorflow(tmp_path / "model.tflite", (X,))

    assert all(param.data.dtype == np.float32 for param in graph.params.values())
    np.testing.assert_allclose(first_output(graph, X), interpret(data, X), atol=0.02)
    assert any(param.source.axis is not None for param in graph.params.values() if param.source)
    for param in graph.params.values():
        assert param.source is not None, param.name
        shape = [1] * param.data.ndim
        if param.source.axis is not None:
            shape[param.source.axis] = -1
        stored = param.data / np.reshape(param.source.scales, shape)
        np.testing.assert_allclose(stored, np.rint(stored), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("place", ["number", "operand", "options"])
def test_tflite_offsets_out_of_range_are_errors(place: str, tmp_path: Path) -> None:
    data = bytearray(lite())
    graph = schema.Model.GetRootAs(data, 0).Subgraphs(0)
    operator = graph.Operators(0)
    found = {
        "number": graph._tab.Vector(graph._tab.Offset(8)),
        "operand": operator._tab.Vector(operator._tab.Offset(6)),
        "options": operator._tab.Pos + operator._tab.Offset(12),
    }[place]
    data[found : found + 4] = b"\xff\xff\xff\x7f"
    (tmp_path / "model.tflite").write_bytes(data)

    with pytest.raises(ImportModelError, match=r"damaged|do not fit"):
        from_tensorflow(tmp_path / "model.tflite", {"picture": X})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_tflite_file_is_an_error_or_a_model(tmp_path_factory: Any, data: Any) -> None:
    whole = lite()
    damaged = bytearray(whole[: data.draw(st.sampled_from([len(whole), len(whole) // 2, 60]))])
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("lite") / "model.tflite"
    path.write_bytes(damaged)

    with contextlib.suppress(ImportModelError):
        assert isinstance(from_tensorflow(path, (X,)), Graph)


# Files in the shared data, with their input shapes.
TINY = {
    "ic_resnet8.h5": (32, 32, 3),
    "vww_mobilenet_v1_025_96.h5": (96, 96, 3),
    "ad_autoencoder_float.tflite": (640,),
    "ic_resnet8_float.tflite": (32, 32, 3),
    "ic_resnet8_int8.tflite": (32, 32, 3),
    "kws_dscnn_float.tflite": (49, 10, 1),
    "vww_mobilenet_v1_025_96_float.tflite": (96, 96, 3),
    "vww_mobilenet_v1_025_96_int8.tflite": (96, 96, 3),
}


@pytest.mark.parametrize("name", TINY)
def test_mlperf_tiny_model_imports(name: str) -> None:
    folder = Path(os.environ.get("POCKENGINE_DATA", "")) / "weights/mlperf_tiny"
    if not (folder / name).is_file():
        pytest.skip("needs weights/mlperf_tiny of POCKENGINE_DATA")
    x = np.random.default_rng(0).uniform(-1, 1, (1, *TINY[name])).astype(np.float32)
    graph = from_tensorflow(folder / name, (x,), training=False)
    found = first_output(graph, x)

    if name.endswith("_float.tflite") and "kws" not in name:  # kws has int8 weights
        expected = interpret((folder / name).read_bytes(), x)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    elif found.shape[-1] < 640:
        assert abs(float(found.sum()) - 1) < 1e-3  # class probabilities


def test_a_saved_model_with_an_unknown_optimizer(tmp_path: Path) -> None:
    module = tf.Module()
    module.kernel = tf.Variable(np.ones((12, 3), np.float32), name="kernel")
    # like Keras 2's optimizers: a class unknown to the loader, with states
    module.optimizer = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
    module.optimizer.apply_gradients([(tf.ones((12, 3)), module.kernel)])
    module.call = tf.function(
        lambda x: {"y": x @ module.kernel}, input_signature=[tf.TensorSpec([None, 12], name="x")]
    )
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.call})
    rows = X.reshape(len(X), -1)[:, :12]
    with pytest.raises(AttributeError, match="add_slot"):
        tf.saved_model.load(str(tmp_path))

    graph = from_tensorflow(tmp_path, (rows,))

    np.testing.assert_allclose(first_output(graph, rows), rows @ module.kernel, rtol=1e-5)
    assert [param.trainable for param in graph.params.values()] == [True]
