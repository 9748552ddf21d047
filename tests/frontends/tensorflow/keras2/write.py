"""Write the files of this folder with TensorFlow 2.15 and its Keras 2: `python write.py`.

`net.keras` and `net.h5` hold one untrained model. `steps.npz` holds the data and the losses of its
first three training steps.
"""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

keras: Any = tf.keras
layers = keras.layers


def blocks(x: Any) -> Any:
    """Apply layers whose Keras 2 configurations Keras 3 cannot read."""
    x = layers.BatchNormalization()(layers.Conv2D(4, 3, strides=2, use_bias=False)(x))
    x = layers.DepthwiseConv2D(3, padding="same", activation=tf.nn.relu6)(x)
    return layers.SpatialDropout2D(0.0)(layers.SeparableConv2D(4, 3, padding="same")(x))


def net() -> Any:
    """Return a model with an inner model of convolutions, attention and recurrent layers."""
    picture, words = keras.Input((9, 9, 3), name="picture"), keras.Input((5,), name="words")
    inner = keras.Input((9, 9, 3))
    base = keras.Model(inner, blocks(inner), name="base")
    x = layers.Reshape((16, 4))(base(picture) + base(picture * 0.5))
    x = layers.MultiHeadAttention(2, 3)(query=x, value=x)[:, :5]
    first = layers.Bidirectional(layers.GRU(2, return_state=True))(x)
    y = layers.Embedding(7, 3, input_length=5)(words)
    y = layers.LSTM(2, recurrent_activation="hard_sigmoid")(y, initial_state=first[1:])
    out = layers.Dense(3)(layers.Concatenate()([1.0 - tf.nn.tanh(first[0]), y]))
    return keras.Model([picture, words], out)


def deflate(path: Path) -> None:
    """Compress a zip file in place."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def main() -> None:
    """Write all files into this folder."""
    keras.utils.set_random_seed(0)
    folder, random = Path(__file__).parent, np.random.default_rng(0)
    model, loss = net(), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    for name in ("net.keras", "net.h5"):
        model.save(folder / name)
    deflate(folder / "net.keras")
    data = {
        "picture": random.normal(size=(4, 9, 9, 3)).astype(np.float32),
        "words": random.integers(0, 7, (4, 5)).astype(np.float32),
        "target": random.integers(0, 3, 4),
    }
    rows = [data["picture"], data["words"]]
    losses = [model.train_on_batch(rows, data["target"]) for _ in range(3)]
    np.savez_compressed(folder / "steps.npz", losses=losses, **data)


if __name__ == "__main__":
    main()
