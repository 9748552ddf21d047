"""Values of MODEL with TensorFlow: Keras and TFLite files, SavedModel folders."""

import json
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from pockengine.cli.options import ModelChoice
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.imported import import_model
from pockengine.frontends.losses import OWN
from pockengine.models.find import find_model


def net(units: int = 3) -> keras.Model:
    return keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(units, name="dense")])


def saved(kind: str, folder: Path, units: int = 3) -> str:
    model, path = net(units), folder / f"net{kind}"
    if kind == ".tflite":
        path.write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    elif kind:
        model.save(path)
    else:
        model.export(str(path), verbose=False)
    return str(path)


@pytest.mark.parametrize("kind", [".keras", ".h5", ".tflite", ""])
def test_inputs_are_read_from_the_file(kind: str, tmp_path: Path) -> None:
    graph = find_model(saved(kind, tmp_path), batch=5).graph()

    first = graph.inputs[0]
    assert first.shape == (5, 4)
    assert graph.input("target").shape == (5,)
    assert any(param.value.shape == (4, 3) for param in graph.params.values())


@pytest.mark.parametrize("kind", [".keras", ".tflite"])
def test_single_output_is_not_a_class(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match="has 1 class, for which cross entropy is always 0"):
        find_model(saved(kind, tmp_path, units=1)).graph()


class Own(keras.losses.Loss):
    def call(self, y_true: object, y_pred: object) -> object:
        return keras.ops.mean(y_pred)


def heads() -> keras.Model:
    x = keras.Input((4,), name="x")
    ends = [keras.layers.Dense(n, name=name)(x) for name, n in (("a", 3), ("b", 4))]
    return keras.Model(x, ends)


def compiled(path: Path, model: keras.Model, **how: object) -> str:
    model.compile("sgd", jit_compile=False, **how)
    model.save(path)
    return str(path)


STATED = {
    "name": "mse",
    "function": keras.losses.mean_squared_error,
    "object": keras.losses.MeanSquaredError(reduction="sum", name="odd"),
    "labels": keras.losses.SparseCategoricalCrossentropy(from_logits=True, name="odd"),
    "listed": ["mae"],
}


@pytest.mark.parametrize("kind", ["keras", "h5"])
@pytest.mark.parametrize("loss", STATED)
def test_loss_is_read_from_the_keras_file(loss: str, kind: str, tmp_path: Path) -> None:
    model, rng = net(), np.random.default_rng(0)
    path = compiled(tmp_path / f"net.{kind}", model, loss=STATED[loss])
    found = find_model(path, batch=5)
    x = rng.standard_normal((5, 4)).astype(np.float32)
    labels = rng.integers(0, 3, 5)
    target = labels if loss == "labels" else rng.standard_normal((5, 3)).astype(np.float32)

    computed = run(found.graph(), {"x": x, "target": target})["loss"]

    assert found.stated
    np.testing.assert_allclose(computed, model.test_on_batch(x, target), rtol=1e-5)


@pytest.mark.parametrize(
    "how",
    [
        {"loss": "mse"},
        {"loss": ["mse", "mae"], "loss_weights": [0.5, 2.0]},
        {"loss": {"a": "mse", "b": keras.losses.Huber()}, "loss_weights": {"a": 1.0, "b": 3.0}},
    ],
)
def test_losses_of_several_outputs(how: dict[str, object], tmp_path: Path) -> None:
    model, rng = heads(), np.random.default_rng(0)
    graph = find_model(compiled(tmp_path / "net.keras", model, **how), batch=5).graph()
    targets = [rng.standard_normal((5, n)).astype(np.float32) for n in (3, 4)]
    names = [value.name for value in graph.inputs[1:]]
    x = rng.standard_normal((5, 4)).astype(np.float32)

    computed = run(graph, {"x": x, **dict(zip(names, targets, strict=True))})["loss"]

    expected = model.evaluate(x, targets, batch_size=5, verbose=0)
    np.testing.assert_allclose(computed, np.ravel(expected)[0], rtol=1e-5)


@pytest.mark.parametrize("kind", ["keras", "h5", None])
def test_python_api_uses_the_loss_of_a_model_or_file(kind: str | None, tmp_path: Path) -> None:
    model, rng = net(), np.random.default_rng(0)
    model.compile("sgd", loss=["mae"], loss_weights=[2.0], jit_compile=False)
    path = tmp_path / f"net.{kind}"
    if kind is not None:
        model.save(path)
    subject = model if kind is None else path
    x, target = (rng.standard_normal((5, n)).astype(np.float32) for n in (4, 3))

    graph = import_model(subject, (x,), None).graph

    inputs = dict(zip((value.name for value in graph.inputs), (x, target), strict=True))
    expected = model.test_on_batch(x, target)
    np.testing.assert_allclose(run(graph, inputs)["loss"], np.ravel(expected)[0], rtol=1e-5)
    for loss, names in (("cross_entropy", {"loss", "output"}), (OWN, {"output"})):
        assert set(import_model(subject, (x,), loss).graph.outputs) == names


def of_a_function() -> tuple[keras.Model, tuple[np.ndarray]]:
    model = net()
    model.compile("sgd", loss="mse")
    return model, (np.zeros((2, 4), np.float32),)


def test_function_may_return_a_model_with_its_loss() -> None:
    found = find_model(f"{__name__}:{of_a_function.__name__}")

    assert found.stated
    assert found.loss == "mse"


def rewritten(path: str, **training: object) -> str:
    with h5py.File(path, "r+") as file:
        file.attrs["training_config"] = json.dumps(training)
    return path


def test_loss_in_the_format_of_keras_2(tmp_path: Path) -> None:
    name = "SparseCategoricalCrossentropy"
    config = {"reduction": "auto", "name": "odd", "from_logits": True, "ignore_class": None}
    loss = {"class_name": name, "config": {**config, "fn": "sparse_categorical_crossentropy"}}
    path = compiled(tmp_path / "net.h5", net(), loss="mse")

    found = find_model(rewritten(path, loss=loss, loss_weights=None), batch=5)

    assert found.loss.get_config()["from_logits"] is True
    assert found.graph().input("target").shape == (5,)


def test_error_names_an_unknown_loss(tmp_path: Path) -> None:
    path = compiled(tmp_path / "net.keras", net(), loss=Own())

    with pytest.raises(ImportModelError, match=r"unknown loss 'Own'.*--loss"):
        find_model(path).graph()


def test_commands_print_the_loss_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = compiled(tmp_path / "net.h5", net(), loss="mean_squared_error")

    assert ModelChoice(path, 2, {}, None).find().loss == "mean_squared_error"
    assert "loss mean_squared_error" in capsys.readouterr().err
    assert ModelChoice(path, 2, {}, "cross_entropy").find().loss == "cross_entropy"
    assert not capsys.readouterr().err
