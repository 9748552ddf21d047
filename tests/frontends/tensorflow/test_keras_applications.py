"""Models of keras.applications: training in generated C compared with Keras."""

from collections.abc import Callable

import keras
import numpy as np
import pytest
from keras import applications, layers
from keras.src.applications import efficientnet, resnet

from pockengine.api import compile as compile_model
from pockengine.frontends.tensorflow import (
    from_tensorflow,
    load_weights,
    to_optimizer,
    to_weights,
)
from pockengine.tests.frontends.tensorflow.checks import check_compiled_training, pictures

SHAPE, CLASSES = (32, 32, 3), 5


def bottlenecks(x: keras.KerasTensor) -> keras.KerasTensor:
    """ResNet50's stages at half width: two blocks each, one with a projection, one without."""
    x = resnet.stack_residual_blocks_v1(x, 32, 2, stride1=1, name="conv2")
    for place, filters in enumerate((64, 128, 256), 3):
        x = resnet.stack_residual_blocks_v1(x, filters, 2, name=f"conv{place}")
    return x


MODELS: dict[str, Callable[[], keras.Model]] = {
    "MobileNetV2": lambda: applications.MobileNetV2(
        SHAPE, alpha=0.35, weights=None, classes=CLASSES
    ),
    "MobileNetV3Small": lambda: applications.MobileNetV3Small(SHAPE, weights=None, classes=CLASSES),
    "ResNet": lambda: resnet.ResNet(
        bottlenecks, False, True, weights=None, input_shape=SHAPE, classes=CLASSES
    ),
    "EfficientNet": lambda: efficientnet.EfficientNet(
        0.5, 0.3, 32, weights=None, input_shape=SHAPE, classes=CLASSES
    ),
}
"""Reduced models: ResNet50 and EfficientNetB0 repeat equal blocks, so two of each kind suffice."""


def stabilized(model: keras.Model) -> keras.Model:
    """Start batch norms at 2 +- 0.3, the middle of ReLU6; make logits small; disable dropout.

    A freshly initialized net that normalizes over four pictures of one pixel amplifies rounding by
    orders of magnitude within one step. Dropout is disabled as our random masks differ.
    """
    for layer in model._flatten_layers():
        if isinstance(layer, layers.BatchNormalization):
            layer.gamma.assign(layer.gamma * 0.3)
            layer.beta.assign(layer.beta + 2.0)
        if isinstance(layer, layers.Dropout):
            layer.rate = 0.0
    head = [layer for layer in model.layers if hasattr(layer, "kernel")][-1]
    head.kernel.assign(head.kernel * 0.1)
    return model


@pytest.mark.parametrize(
    "name",
    [
        "MobileNetV2",
        *(
            pytest.param(each, marks=pytest.mark.nightly)
            for each in MODELS
            if each != "MobileNetV2"
        ),
    ],
)
def test_application_trains_as_in_keras(name: str) -> None:
    keras.utils.set_random_seed(0)

    bytes_like = [(64 * x + 128, y) for x, y in pictures(4, 32, CLASSES)]
    rescales = "V3" in name or "Efficient" in name  # takes pixels from 0 to 255

    check_compiled_training(
        stabilized(MODELS[name]()), bytes_like if rescales else pictures(4, 32, CLASSES)
    )


def test_prediction_equals_keras_inference() -> None:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(momentum=0.5),
            layers.Dropout(0.5),
            layers.Flatten(),
            layers.Dense(CLASSES),
        ]
    )
    batches = pictures(4, 8, CLASSES, 3)
    graph = from_tensorflow(model, batches[0][:1], loss="cross_entropy")
    optimizer = to_optimizer(keras.optimizers.Adam())

    with compile_model(graph, (), optimizer=optimizer).session() as session:
        for step, (x, target) in enumerate(batches):
            session.train_step({"input": x, "target": target}, lr=0.01, seed=step)
        tuned = {name: session.get_param(name) for name in graph.params}
        load_weights(model, to_weights(graph, tuned))
        found = session.predict({"input": batches[0][0]})["output"]

    np.testing.assert_allclose(found, model(batches[0][0], training=False), rtol=1e-4, atol=1e-5)


def test_pictures_are_not_transposed() -> None:
    graph = from_tensorflow(MODELS["MobileNetV2"](), pictures(4, 32, CLASSES)[0][:1])

    assert not any(node.op == "transpose" for node in graph.nodes)
    assert sum(node.op == "batch_norm" for node in graph.nodes) == 52
    assert graph.params["block_1_depthwise/kernel"].value.shape == (3, 3, 1, 48)
    scopes = [node.scope for node in graph.nodes if node.op == "batch_norm"]
    assert scopes[1] == "mobilenetv2_0.35_32/expanded_conv_depthwise_BN/batchnorm"
