"""Fuzz the readers of TFLite and Keras files: a damaged file gives a graph or a PockEngineError.

python -m pockengine.tests.fuzz.lite_readers --executions 20000
"""

from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.tests.fuzz.damage import Reader, command

X = np.random.default_rng(0).standard_normal((2, 6, 6, 2)).astype(np.float32)


def readers(place: Path) -> Mapping[str, Reader]:
    """Write a float model, a quantized one, and Keras's own format."""
    model = _model()
    own = place / "net.keras"
    model.save(own)
    return {
        kind: _reader(place / f"{kind}.tflite", _converted(model, quantized=kind == "quantized"))
        for kind in ("floats", "quantized")
    } | {"keras": _reader(own, own.read_bytes())}


def _model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((6, 6, 2), batch_size=1),
            layers.Conv2D(3, 3, strides=2, padding="same", activation="relu"),
            layers.DepthwiseConv2D(3),
            layers.MaxPool2D(1),
            layers.Flatten(),
            layers.Dense(4),
            layers.Softmax(),
        ]
    )


def _converted(model: keras.Model, *, quantized: bool) -> bytes:
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if quantized:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([x[None]] for x in X)
    data: bytes = converter.convert()
    return data


def _reader(path: Path, data: bytes) -> Reader:
    path.write_bytes(data)
    return Reader(path, lambda: from_tensorflow(path, (X,), loss="mse"))


if __name__ == "__main__":
    command(readers, __doc__)
