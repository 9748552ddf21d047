"""Models of keras.applications, ten steps in generated C beside Keras."""

from collections.abc import Callable

import keras
import pytest
from keras import applications, layers

from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.tests.frontends.tensorflow.checks import check_compiled_training, pictures

SHAPE, CLASSES = (32, 32, 3), 5

MODELS: dict[str, Callable[[], keras.Model]] = {
    "MobileNetV2": lambda: applications.MobileNetV2(
        SHAPE, alpha=0.35, weights=None, classes=CLASSES
    ),
    "MobileNetV3Small": lambda: applications.MobileNetV3Small(SHAPE, weights=None, classes=CLASSES),
    "ResNet50": lambda: applications.ResNet50(weights=None, input_shape=SHAPE, classes=CLASSES),
    "EfficientNetB0": lambda: applications.EfficientNetB0(
        weights=None, input_shape=SHAPE, classes=CLASSES
    ),
}


def calm(model: keras.Model) -> keras.Model:
    """Let batch norms start at 2 +- 0.3, the middle of ReLU6, logits small, and nothing drop.

    A net as it is initialised, normalised by four pictures of one pixel, amplifies rounding by
    orders of magnitude within one step. Random masks are ours and not TensorFlow's.
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


@pytest.mark.parametrize("name", MODELS)
def test_application_trains_as_in_keras(name: str) -> None:
    keras.utils.set_random_seed(0)

    bytes_like = [(64 * x + 128, y) for x, y in pictures(4, 32, CLASSES)]
    rescales = "V3" in name or "Efficient" in name  # takes 0 to 255, as pictures come

    check_compiled_training(
        calm(MODELS[name]()), bytes_like if rescales else pictures(4, 32, CLASSES)
    )


def test_pictures_stay_as_they_lie() -> None:
    graph = from_tensorflow(MODELS["MobileNetV2"](), pictures(4, 32, CLASSES)[0][:1])

    assert not any(node.op == "transpose" for node in graph.nodes)
    assert sum(node.op == "batch_norm" for node in graph.nodes) == 52
    assert graph.params["block_1_depthwise/kernel"].value.shape == (3, 3, 1, 48)
    scopes = [node.scope for node in graph.nodes if node.op == "batch_norm"]
    assert scopes[1] == "mobilenetv2_0.35_32/expanded_conv_depthwise_BN/batchnorm"
