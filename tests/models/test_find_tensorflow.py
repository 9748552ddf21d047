"""What MODEL may be where TensorFlow is: files of Keras and TFLite, folders of SavedModels."""

from pathlib import Path

import keras
import pytest
import tensorflow as tf

from pockengine.models.find import find_model


def net() -> keras.Model:
    return keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(3, name="dense")])


def saved(kind: str, folder: Path) -> str:
    model, path = net(), folder / f"net{kind}"
    if kind == ".tflite":
        path.write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    elif kind:
        model.save(path)
    else:
        model.export(str(path), verbose=False)
    return str(path)


@pytest.mark.parametrize("kind", [".keras", ".h5", ".tflite", ""])
def test_a_file_says_itself_what_it_takes(kind: str, tmp_path: Path) -> None:
    graph = find_model(saved(kind, tmp_path), batch=5).graph()

    first = graph.inputs[0]
    assert first.shape == (5, 4)
    assert graph.input("target").shape == (5,)
    assert any(param.value.shape == (4, 3) for param in graph.params.values())
