"""Model files that contain code, write files or decompress hugely are refused before loading."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.core.protobuf import saved_model_pb2

from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.frontends.tensorflow.saved import load

X = np.ones((2, 4), np.float32)


def small(*extra: Any) -> keras.Model:
    return keras.Sequential([keras.Input((4,)), layers.Dense(3, name="first"), *extra], name="net")


def refusal(path: Path) -> str:
    with pytest.raises(ImportModelError) as caught:
        from_tensorflow(path, (X,))
    return str(caught.value)


@pytest.mark.parametrize("suffix", ["h5", "keras"])
def test_a_lambda_never_runs(suffix: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def hostile(x: Any) -> Any:
        open(mark, "w").close()
        return x

    path = tmp_path / f"model.{suffix}"
    small(layers.Lambda(hostile, name="odd")).save(path)
    mark.unlink()

    assert "the Lambda 'odd' holds code or reads other files" in refusal(path)
    assert not mark.exists()


@keras.saving.register_keras_serializable("tests")
class Twice(layers.Layer):
    """A custom layer."""

    def call(self, x: Any) -> Any:
        return x * 2


def test_registered_layers_are_loaded(tmp_path: Path) -> None:
    small(Twice()).save(tmp_path / "model.keras")
    small(layers.Activation("silu"), layers.GaussianNoise(0.1)).save(tmp_path / "other.keras")
    x = keras.Input((4,))
    keras.Model(x, keras.ops.relu(layers.Dense(3)(x)) + 1).save(tmp_path / "functional.keras")

    for name in ("model", "other", "functional"):
        assert from_tensorflow(tmp_path / f"{name}.keras", (X,), training=False).outputs


def rewrite(path: Path, change: Callable[[dict[str, Any]], object], **extra: bytes) -> None:
    """Change the configuration in a .keras file, and add entries."""
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    config = json.loads(entries["config.json"])
    change(config)
    entries["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**entries, **extra}.items():
            archive.writestr(name, data)


def layer_of(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = config["config"]["layers"][1]
    return found


CONFIGS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a module of Python": (
        lambda c: layer_of(c).update(module="os", class_name="system", registered_name=None),
        "the system 'first' is of os, not Keras's own",
    ),
    "a function of Keras": (
        lambda c: layer_of(c).update(module="keras.utils", class_name="get_file"),
        "the get_file 'first' is of keras.utils, not Keras's own",
    ),
    "an activation of code": (
        lambda c: layer_of(c)["config"].update(
            activation={"class_name": "__lambda__", "config": {"value": "4wEAAAA="}}
        ),
        "__lambda__ holds code",
    ),
    "a function of another package": (
        lambda c: layer_of(c)["config"].update(
            activation={"class_name": "function", "module": "builtins", "registered_name": "eval"}
        ),
        "function is of builtins, not Keras's own",
    ),
    "an unregistered class": (
        lambda c: layer_of(c).update(module=None, registered_name="other>Layer"),
        "is of other>Layer, not Keras's own",
    ),
    "a model of another file": (
        lambda c: layer_of(c).update(class_name="TFSMLayer"),
        "the TFSMLayer 'first' holds code or reads other files",
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_may_name_only_keras_layers(name: str, tmp_path: Path) -> None:
    change, words = CONFIGS[name]
    small().save(tmp_path / "model.keras")
    rewrite(tmp_path / "model.keras", change)

    assert words in refusal(tmp_path / "model.keras")


@pytest.mark.parametrize("function", ["io.write_file", "nn.os.system", "py_function", "__doc__.x"])
def test_a_keras_2_file_calls_only_functions_that_compute(function: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(Path(__file__).parent / "keras2/net.keras", tmp_path))
    with zipfile.ZipFile(path) as archive:
        config = archive.read("config.json").decode()
    assert '"math.tanh"' in config
    changed = json.loads(config.replace('"math.tanh"', f'"{function}"'))
    rewrite(path, lambda old: old.update(changed))

    with pytest.raises(
        ImportModelError, match=f"the model calls tf.{function}, which is not one of"
    ):
        load(path)


def test_archives_that_escape_or_unpack_hugely_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    small().save(path)
    rewrite(path, lambda config: None, **{"../outside": b""})
    assert "holds a file outside of itself: '../outside'" in refusal(path)

    small().save(path)
    rewrite(path, lambda config: None, zeros=bytes(300 << 20))
    assert "unfolds to 4 files of " in refusal(path)


def links(file: h5py.File) -> None:
    file["odd"] = h5py.ExternalLink("/etc/passwd", "/")


def soft(file: h5py.File) -> None:
    file["odd"] = h5py.SoftLink("/model_weights")


def elsewhere(file: h5py.File) -> None:
    file.create_dataset("odd", (4,), "u1", external=[("/etc/passwd", 0, 4)])


def vast(file: h5py.File) -> None:
    file.create_dataset("odd", (1 << 40,), "f4", chunks=(1024,))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (links, "links to other data at //odd"),
        (soft, "links to other data at //odd"),
        (elsewhere, "keeps /odd in another file"),
        (vast, "to 4398"),
    ],
)
@pytest.mark.parametrize("suffix", ["h5", "keras"])
def test_weights_outside_their_file_are_refused(
    change: Callable[[h5py.File], None], words: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"model.{suffix}"
    small().save(path)
    if suffix == "h5":
        with h5py.File(path, "a") as file:
            change(file)
    else:
        weights = tmp_path / "weights.h5"
        with zipfile.ZipFile(path) as archive:
            weights.write_bytes(archive.read("model.weights.h5"))
        with h5py.File(weights, "a") as file:
            change(file)
        rewrite(path, lambda config: None, **{"model.weights.h5": weights.read_bytes()})

    assert words in refusal(path)


class Writer(tf.saved_model.experimental.TrackableResource):
    """A resource whose initializer writes a file; every load runs the initializer."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = str(mark)

    def _create_resource(self) -> Any:
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=())

    def _initialize(self) -> None:
        tf.io.write_file(self.mark, "run")


class Module(tf.Module):
    """A module of one matrix product; `extra` is saved with it."""

    def __init__(self, extra: Any = None) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones((4, 3)), name="weight")
        self.extra = extra

    @tf.function(input_signature=[tf.TensorSpec((None, 4), name="x")])
    def __call__(self, x: Any) -> Any:
        return {"y": x @ self.weight}


def saved(folder: Path, module: tf.Module) -> Path:
    tf.saved_model.save(module, str(folder), signatures=module.__call__)
    return folder


def test_an_initializer_never_writes(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = saved(tmp_path / "model", Module(Writer(mark)))
    mark.unlink(missing_ok=True)

    assert "has the operator WriteFile at " in refusal(path)
    assert not mark.exists()


def test_assets_and_tables_are_refused(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("a\nb\n")
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(
            str(words),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        1,
    )
    assert "reads other files (assets)" in refusal(saved(tmp_path / "model", Module(table)))


def edited(path: Path, change: Callable[[Any], object]) -> Path:
    """Change the first graph of a SavedModel."""
    model = saved_model_pb2.SavedModel()
    model.ParseFromString((path / "saved_model.pb").read_bytes())
    change(model.meta_graphs[0])
    (path / "saved_model.pb").write_bytes(model.SerializeToString())
    return path


def saver_of(graph: Any) -> str:
    names = [function.signature.name for function in graph.graph_def.library.function]
    return next(name for name in names if name.startswith("__inference__traced_save_"))


def wrapper_of(graph: Any) -> Any:
    functions = graph.graph_def.library.function
    return next(f for f in functions if "signature_wrapper" in f.signature.name)


def calls_saver(graph: Any) -> None:
    node = graph.graph_def.node.add(name="odd", op="StatefulPartitionedCall")
    node.attr["f"].func.name = saver_of(graph)


def offers_saver(graph: Any) -> None:
    graph.object_graph_def.concrete_functions[saver_of(graph)].bound_inputs.append(0)


def is_older(graph: Any) -> None:
    graph.ClearField("object_graph_def")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (calls_saver, "its main graph writes or reads files at 'odd'"),
        (offers_saver, "offers __inference__traced_save_"),
        (is_older, "is a SavedModel of TensorFlow 1"),
        (
            lambda graph: graph.graph_def.node.add(name="odd", op="ReadFile"),
            "its main graph has the operator ReadFile at 'odd'",
        ),
        (
            lambda graph: wrapper_of(graph).node_def.add(name="odd", op="SaveV2"),
            "has the operator SaveV2 at 'odd'",
        ),
    ],
)
def test_only_functions_that_compute_are_loaded(
    change: Callable[[Any], object], words: str, tmp_path: Path
) -> None:
    assert words in refusal(edited(saved(tmp_path / "model", Module()), change))
