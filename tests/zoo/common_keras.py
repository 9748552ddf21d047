"""The two common models in Keras."""

import math
from typing import Any

import keras
from keras import layers, ops

from pockengine.compiler.ir import Graph
from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.tests.zoo import common
from pockengine.tests.zoo.common_measure import report


def resnet_model() -> keras.Model:
    """Build the residual net."""

    def block(x: Any, name: str) -> Any:
        kh, kw, _, features = common.CONVOLUTIONS[name]
        convolution = layers.Conv2D(features, (kh, kw), padding="same", use_bias=False, name=name)
        norm = layers.BatchNormalization(momentum=0.9, epsilon=common.EPSILON, name=f"{name}_norm")
        return norm(convolution(x))

    inputs = keras.Input((common.SIDE, common.SIDE, 3), batch_size=common.BATCH, name="x")
    x = layers.ReLU()(block(inputs, "stem"))
    y = layers.ReLU()(block(x, "a1"))
    x = layers.ReLU()(layers.Add()([x, block(y, "a2")]))
    x = layers.MaxPooling2D(2)(x)
    y = layers.ReLU()(block(x, "b1"))
    x = layers.ReLU()(layers.Add()([block(x, "skip"), block(y, "b2")]))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(common.CLASSES, name="head")(x))


class Positions(layers.Layer):
    """Add a learned vector to each position."""

    def build(self, shape: Any) -> None:
        self.vectors = self.add_weight(shape=shape[1:], name="vectors")

    def call(self, x: Any) -> Any:
        return x + self.vectors


class Attention(layers.Layer):
    """Dot-product self-attention."""

    def call(self, query: Any, key: Any, value: Any) -> Any:
        query, key, value = (self.heads(x) for x in (query, key, value))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        weights = ops.softmax(scores / math.sqrt(common.WIDTH // common.HEADS))
        mixed = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
        return ops.reshape(mixed, (common.BATCH, common.LENGTH, common.WIDTH))

    def heads(self, x: Any) -> Any:
        split = ops.reshape(
            x, (common.BATCH, common.LENGTH, common.HEADS, common.WIDTH // common.HEADS)
        )
        return ops.transpose(split, (0, 2, 1, 3))


def transformer_model() -> keras.Model:
    """Build the transformer."""

    def linear(x: Any, name: str) -> Any:
        return layers.Dense(common.LINEAR[name][1], name=name)(x)

    def norm(x: Any, name: str) -> Any:
        return layers.LayerNormalization(epsilon=common.EPSILON, name=name)(x)

    inputs = keras.Input((common.LENGTH,), batch_size=common.BATCH, dtype="int64", name="words")
    x = Positions(name="positions")(
        layers.Embedding(common.WORDS, common.WIDTH, name="embedding")(inputs)
    )
    y = norm(x, "before_attention")
    mixed = Attention()(*(linear(y, name) for name in ("query", "key", "value")))
    x = layers.Add()([x, linear(mixed, "out")])
    wide = linear(norm(x, "before_mlp"), "wide")
    wide = layers.Activation(lambda x: ops.gelu(x, approximate=True))(wide)
    x = layers.Add()([x, linear(wide, "narrow")])
    mean = ops.mean(norm(x, "before_head"), axis=1)
    return keras.Model(inputs, linear(mean, "head"))


def graph(name: str, model: keras.Model) -> Graph:
    """Load a model with the weights and import it."""
    weights = common.weights(name)
    for layer in model.layers:
        stem = layer.name.removesuffix("_norm")
        own = [array for key, array in weights.items() if key.split(".")[0] == stem]
        is_norm = isinstance(layer, (layers.BatchNormalization, layers.LayerNormalization))
        if own and layer.weights:
            vectors = [weights[f"{stem}.scale"], weights[f"{stem}.shift"]] if is_norm else own
            kernel = [weights[f"{stem}.kernel"]] if isinstance(layer, layers.Conv2D) else vectors
            layer.set_weights([*kernel, *layer.get_weights()[len(kernel) :]])
    return from_tensorflow(model, (common.example(name),), loss="cross_entropy")


def resnet() -> Graph:
    """Import the residual net."""
    return graph("resnet", resnet_model())


def transformer() -> Graph:
    """Import the transformer."""
    return graph("transformer", transformer_model())


if __name__ == "__main__":
    report({"resnet": resnet, "transformer": transformer})
