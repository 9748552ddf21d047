"""TFLite files from converters: outputs equal LiteRT's, training equals Keras's."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.options import Training
from pockengine.errors import CompileError, ImportModelError, InternalError
from pockengine.frontends.choices import with_choices
from pockengine.frontends.registry import find_source
from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.frontends.tensorflow.lite import ops
from pockengine.tests.frontends.tensorflow.checks import relative_error

L = keras.layers
Converter = Any
RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def halves(converter: Converter) -> None:
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]


def sparse(converter: Converter) -> None:
    converter.optimizations = [tf.lite.Optimize.EXPERIMENTAL_SPARSITY]


def sparse_halves(converter: Converter) -> None:
    halves(converter)
    converter.optimizations = [*converter.optimizations, tf.lite.Optimize.EXPERIMENTAL_SPARSITY]


def unchanged(converter: Converter) -> None:
    pass


def net(shape: tuple[int, ...], *layers: Any, batch: int | None = None) -> keras.Model:
    """Return a net without zero weights, which a converter might drop."""
    model = keras.Sequential([keras.Input(shape, batch_size=batch, name="x"), *layers])
    for variable in model.trainable_variables:
        variable.assign(numbers(*variable.shape) / 3)
    return model


def converted(path: Path, model: Any, option: Callable[[Converter], None] = unchanged) -> Path:
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    option(converter)
    path.write_bytes(converter.convert())
    return path


def interpreted(path: Path, x: np.ndarray) -> np.ndarray:
    resolver = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = tf.lite.Interpreter(str(path), experimental_op_resolver_type=resolver)
    (inputs,) = interpreter.get_input_details()
    interpreter.resize_tensor_input(inputs["index"], x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(inputs["index"], x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def check_step(path: Path, x: np.ndarray, model: keras.Model) -> Graph:
    """Compare outputs with LiteRT's, and losses before and after one step with Keras's."""
    target = np.ones_like(interpreted(path, x))
    graph = from_tensorflow(path, (x,), loss="mse")
    (output,) = (name for name in graph.outputs if name != "loss")
    entry = compile_program(graph, Training(), check=True).entries["train"].graph
    params = {name: param.data.copy() for name, param in entry.params.items()}
    feed = {graph.inputs[0].name: x, "target": target}

    first = run(entry, {**feed, "lr": np.float32(0.1)}, params)
    second = run(entry, {**feed, "lr": np.float32(0.1)}, params)

    assert relative_error(first[output], interpreted(path, x)) <= 1e-5
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    losses = [float(model.train_on_batch(x, target))]
    model.reset_metrics()  # older versions return the mean of all losses so far
    losses.append(float(model.test_on_batch(x, target)))
    np.testing.assert_allclose([first["loss"], second["loss"]], losses, rtol=1e-4)
    return graph


SHAPED = {
    "reshape": ((12,), [L.Reshape((3, 4)), L.Permute((2, 1)), L.Dense(5), L.Flatten(), L.Dense(3)]),
    "windows": ((16, 4), [L.Conv1D(5, 3, dilation_rate=2), L.Flatten(), L.Dense(3)]),
    "larger": ((4, 4, 2), [L.Conv2DTranspose(3, 3, strides=2), L.GlobalMaxPooling2D(), L.Dense(3)]),
}


@pytest.mark.parametrize("name", SHAPED)
def test_a_file_with_an_open_batch_trains_as_in_keras(name: str, tmp_path: Path) -> None:
    shape, layers = SHAPED[name]
    model = net(shape, *(layer.__class__.from_config(layer.get_config()) for layer in layers))
    path = converted(tmp_path / "net.tflite", model)
    operators = {detail["op_name"] for detail in tf.lite.Interpreter(str(path))._get_ops_details()}
    assert "SHAPE" in operators or name != "reshape"  # older converters write -1 for some

    check_step(path, numbers(3, *shape), model)


def test_f16_weights_are_params_under_their_names(tmp_path: Path) -> None:
    model = net((8, 8, 3), L.Conv2D(4, 3, activation="relu"), L.Flatten(), L.Dense(3))
    for variable in model.trainable_variables:
        variable.assign(np.asarray(variable).astype(np.float16))
    path = converted(tmp_path / "net.tflite", model, halves)

    graph = check_step(path, numbers(3, 8, 8, 3), model)

    assert {param.data.dtype.name for param in graph.params.values()} == {"float32"}
    assert not any("dequantize" in name.lower() for name in graph.params)
    assert not any(node.op == "transpose" for node in graph.nodes)
    assert len(graph.params) == 4


# LiteRT itself returns NaN for block-sparse f16 weights
@pytest.mark.parametrize(("option", "block"), [(sparse, 1), (sparse, 4), (sparse_halves, 1)])
def test_sparse_weights_are_read(option: Any, block: int, tmp_path: Path) -> None:
    model = net((64,), L.Dense(64, activation="relu"), L.Dense(16))
    for layer in model.layers:
        kernel = np.asarray(layer.kernel)
        mask = RNG.random((kernel.shape[0] // block, kernel.shape[1])) < 0.1
        layer.kernel.assign((kernel * np.repeat(mask, block, axis=0)).astype(np.float16))
        layer.bias.assign(np.asarray(layer.bias).astype(np.float16))
    path = converted(tmp_path / "net.tflite", model, option)
    operators = [detail["op_name"] for detail in tf.lite.Interpreter(str(path))._get_ops_details()]
    assert "DENSIFY" in operators or path.stat().st_size < 12_000

    check_step(path, numbers(3, 64), model)


RECURRENT = {
    "lstm": lambda: [L.LSTM(6)],
    "gru": lambda: [L.GRU(6)],
    "sequence": lambda: [L.SimpleRNN(6, return_sequences=True), L.Flatten()],
}


@pytest.mark.parametrize("name", RECURRENT)
def test_a_loop_is_unrolled_with_shared_weights(name: str, tmp_path: Path) -> None:
    model = net((5, 4), *RECURRENT[name](), L.Dense(3), batch=1)
    path = converted(tmp_path / "net.tflite", model)

    graph = check_step(path, numbers(1, 5, 4), model)

    trained = [param.name for param in graph.params.values() if param.trainable]
    assert sum(graph.params[name].data.size for name in trained) >= model.count_params() - 6
    with pytest.raises(ImportModelError, match="by a batch 3 times that which the file was"):
        from_tensorflow(path, (numbers(3, 5, 4),))


class Branch(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2.0, lambda: x - 1.0)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_data_dependent_branch(sign: int, tmp_path: Path) -> None:
    model = net((4,), Branch(), L.Dense(3), batch=2)

    check_step(converted(tmp_path / "n.tflite", model), sign * np.ones((2, 4), np.float32), model)


@pytest.mark.parametrize("part", ["slice", "reshape", "larger"])
def test_a_fixed_batch_of_one_imports_with_a_larger_batch(part: str, tmp_path: Path) -> None:
    x = keras.Input((6, 4), batch_size=1)
    parts = {"slice": lambda x: x[:, 1:4, ::2], "reshape": L.Reshape((-1, 3))}
    model = keras.Model(x, L.Dense(3)(parts.get(part, L.UpSampling1D())(x)))
    path, rows = converted(tmp_path / "net.tflite", model), numbers(3, 6, 4)

    found = run(graph := from_tensorflow(path, (rows,)), {graph.inputs[0].name: rows})

    expected = np.concatenate([model(row[None]) for row in rows])
    assert relative_error(next(iter(found.values())), expected) <= 1e-5


def test_mediapipe_transposed_convolution_with_a_bias(tmp_path: Path) -> None:
    model = net((4, 4, 2), L.Conv2DTranspose(3, 3, strides=2, padding="same"), batch=1)
    path = converted(tmp_path / "net.tflite", model)
    file = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    (operator,) = file.subgraphs[0].operators
    (code,) = file.operatorCodes
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = b"Convolution2DTransposeBias"
    operator.builtinOptionsType, operator.builtinOptions = 0, None
    operator.inputs = [operator.inputs[i] for i in (2, 1, 3)]
    operator.customOptions = np.frombuffer(struct.pack("<iii", 1, 2, 2), np.uint8)
    builder = flatbuffers.Builder(1024)
    builder.Finish(file.Pack(builder), b"TFL3")
    path.write_bytes(builder.Output())
    x = numbers(2, 4, 4, 2)

    found = run(graph := from_tensorflow(path, (x,)), {graph.inputs[0].name: x})

    expected = np.concatenate([model(row[None]) for row in x])
    assert relative_error(next(iter(found.values())), expected) <= 1e-5


ENDS = {
    "moved": [L.Dense(4), L.Softmax(), L.Reshape((4, 1)), L.Flatten()],
    "logarithm": [L.Dense(4), L.Activation("log_softmax")],
    "logits": [L.Dense(4)],
}


@pytest.mark.parametrize("end", ENDS)
def test_cross_entropy_of_each_final_layer(end: str, tmp_path: Path) -> None:
    model = net((5,), *(layer.__class__.from_config(layer.get_config()) for layer in ENDS[end]))
    x, labels = numbers(3, 5), np.array([0, 3, 1])
    y = np.asarray(model(x)).astype(np.float64)
    logarithms = np.log(y) if end == "moved" else y - np.log(np.exp(y).sum(1, keepdims=True))
    expected = -logarithms[np.arange(3), labels].mean()
    model.export(str(tmp_path / "saved"), verbose=False)
    model.save(tmp_path / "net.keras")
    lite = converted(tmp_path / "net.tflite", model)

    for source in (model, tmp_path / "net.keras", lite, tmp_path / "saved"):
        graph = from_tensorflow(source, (x,), loss="cross_entropy")
        loss = run(graph, {graph.inputs[0].name: x, "target": labels})["loss"]
        np.testing.assert_allclose(loss, expected, rtol=1e-4, err_msg=str(source))


def test_sigmoids_are_refused_for_cross_entropy(tmp_path: Path) -> None:
    model = net((5,), L.Dense(4, activation="sigmoid"))
    path = converted(tmp_path / "net.tflite", model)

    for source in (model, path):
        with pytest.raises(ImportModelError, match="cross_entropy_logits"):
            from_tensorflow(source, (numbers(3, 5),), loss="cross_entropy")


def test_our_bugs_are_not_reported_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = converted(tmp_path / "net.tflite", net((4, 4, 2), L.Conv2D(3, 2)))
    monkeypatch.setattr(ops, "permute", None)

    with pytest.raises(InternalError, match=r"it read CONV_2D in .*: TypeError.*lite/ops.py"):
        from_tensorflow(path, (numbers(1, 4, 4, 2),))


def test_statistics_of_a_normalization_do_not_train(tmp_path: Path) -> None:
    norm = L.Normalization(mean=[0.5, -1.0, 2.0], variance=[2.0, 0.3, 1.5])
    path = converted(tmp_path / "net.tflite", net((3,), norm, L.Dense(4), L.Dense(2)))

    with pytest.warns(UserWarning, match=r"do not \(statistics that an input is normalized"):
        graph = from_tensorflow(path, (numbers(2, 3),))

    frozen = [param for param in graph.params.values() if not param.trainable]
    assert frozen
    assert all(param.value.shape in ((3,), (1, 3)) for param in frozen)
    assert sum(param.trainable for param in graph.params.values()) >= 2


def test_trained_weights_are_reported(tmp_path: Path) -> None:
    head = L.Dense(2, bias_initializer="ones")
    model = keras.Sequential([keras.Input((4, 4, 3)), L.Conv2D(4, 3), L.Flatten(), head])
    path = converted(tmp_path / "net.tflite", model)
    x = numbers(2, 4, 4, 3)
    with pytest.warns(UserWarning, match=r"3 weights train; .*\(biases of zeros, .*--frozen NAME"):
        params = from_tensorflow(path, (x,)).params
    (filters,) = [name for name, param in params.items() if len(param.value.shape) == 4]
    (zeros,) = [name for name, param in params.items() if not param.trainable]
    chosen = {filters: False, zeros: True}

    graph = find_source(with_choices(path, None, chosen), (x,)).graph("mse")

    assert {name: graph.params[name].trainable for name in chosen} == chosen
    assert sum(param.trainable for param in graph.params.values()) == 3
    with pytest.raises(ImportModelError, match=r"'nobody' .*--frozen.* is no weight"):
        from_tensorflow(path, (x,), trainable={"nobody": True})
    with pytest.raises(CompileError, match=r"constants= is for ONNX models, and trainable= for"):
        with_choices(path, {"x": x}, chosen)
