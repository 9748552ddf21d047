"""The benchmark models in Keras: the same architecture, weights and numerics as models/ in PyTorch.

Channels-last. PyTorch pads symmetrically, so a convolution is ZeroPadding2D and "valid" ("same"
would put a strided convolution's padding elsewhere). Runs on Keras 2 (TensorFlow 2.15, what an
emulated board has) and Keras 3. Variables are known by PyTorch's names, so that weights and schemes
carry over.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from pockengine.errors import FarmError
from pockengine.farm.references.job import Tensors
from pockengine.models.registry import ModelName, parse_model

layers = tf.keras.layers
Tensor = Any  # Keras 2 and 3 have different symbolic tensors, and neither is typed

# PyTorch keeps 1 - 0.1 of the old running statistic at each step.
BATCH_NORM = {"momentum": 0.9, "epsilon": 1e-5}
# Expansion, channels at width 1, blocks, stride of the first (table 2 of arXiv 1801.04381).
MOBILENET_V2_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
# From PyTorch's axes to TensorFlow's: OIHW -> HWIO, depthwise C1HW -> HWC1, linear OI -> IO.
CONVOLUTION, DEPTHWISE, LINEAR, VECTOR = (2, 3, 1, 0), (2, 3, 0, 1), (1, 0), (0,)
CHANNEL_AXIS = {CONVOLUTION: 2, DEPTHWISE: 2, LINEAR: 0, VECTOR: 0}


@dataclass(frozen=True)
class Parameter:
    """A TensorFlow variable and the permutation that PyTorch's axes take to get there."""

    variable: tf.Variable
    permutation: tuple[int, ...]
    is_buffer: bool = False

    @property
    def channel_axis(self) -> int:
        """The variable's axis of input channels."""
        return CHANNEL_AXIS[self.permutation]

    def write(self, tensor: NDArray[np.generic]) -> None:
        """Assign a tensor in PyTorch's layout."""
        self.variable.assign(np.transpose(tensor, self.permutation))

    def read(self) -> NDArray[np.generic]:
        """Return the value in PyTorch's layout."""
        inverse = np.argsort(self.permutation)
        return np.ascontiguousarray(np.transpose(self.variable.numpy(), inverse))


@dataclass(frozen=True)
class KerasNet:
    """A Keras model from [N, H, W, C] to logits, and its variables by PyTorch's names."""

    model: tf.keras.Model
    parameters: dict[str, Parameter]

    def load(self, weights: Tensors) -> None:
        """Assign a state_dict; FarmError names what is missing or left over."""
        given = {name for name in weights if not name.endswith(".num_batches_tracked")}
        odd = sorted(given ^ set(self.parameters))
        if odd:
            where = "the Keras model" if odd[0] in given else "the weights"
            raise FarmError(f"{odd[0]!r} is not in {where} ({len(odd)} names differ)")
        for name, parameter in self.parameters.items():
            parameter.write(weights[name])

    def tensors(self) -> Tensors:
        """Return all parameters and buffers in PyTorch's layouts."""
        return {name: parameter.read() for name, parameter in self.parameters.items()}


class Layers:
    """Applies layers under PyTorch's names and remembers their variables."""

    def __init__(self) -> None:
        """Start without a layer."""
        self.parameters: dict[str, Parameter] = {}

    def convolution(
        self, x: Tensor, name: str, filters: int, kernel: int, stride: int = 1
    ) -> Tensor:
        """Convolve without a bias, padded to keep the resolution (but for the stride)."""
        layer = layers.Conv2D(filters, kernel, stride, "valid", use_bias=False)
        y = layer(_padded(x, kernel))
        self.parameters[f"{name}.weight"] = Parameter(layer.kernel, CONVOLUTION)
        return y

    def depthwise(self, x: Tensor, name: str, kernel: int, stride: int) -> Tensor:
        """Filter each channel by itself, without a bias."""
        layer = layers.DepthwiseConv2D(kernel, stride, "valid", use_bias=False)
        y = layer(_padded(x, kernel))
        # Keras 2 and 3 call it differently; it is the layer's only variable.
        self.parameters[f"{name}.weight"] = Parameter(layer.trainable_weights[0], DEPTHWISE)
        return y

    def batch_norm(self, x: Tensor, name: str) -> Tensor:
        """Normalise each channel."""
        layer = layers.BatchNormalization(**BATCH_NORM)
        y = layer(x)
        self.parameters[f"{name}.weight"] = Parameter(layer.gamma, VECTOR)
        self.parameters[f"{name}.bias"] = Parameter(layer.beta, VECTOR)
        for buffer, variable in (("mean", layer.moving_mean), ("var", layer.moving_variance)):
            self.parameters[f"{name}.running_{buffer}"] = Parameter(variable, VECTOR, True)
        return y

    def linear(self, x: Tensor, name: str, outputs: int) -> Tensor:
        """Multiply by a matrix and add a bias."""
        layer = layers.Dense(outputs)
        y = layer(x)
        self.parameters[f"{name}.weight"] = Parameter(layer.kernel, LINEAR)
        self.parameters[f"{name}.bias"] = Parameter(layer.bias, VECTOR)
        return y


def build_keras(name: str, classes: int, batch: int) -> KerasNet:
    """Build a benchmark model for a batch size; FarmError for a family that has no Keras form.

    The argument `training` of a call says whether batch norms normalise by the batch.
    """
    model = parse_model(name)
    builder = FAMILIES.get(model.family)
    if builder is None:
        raise FarmError(f"{model.family} has no Keras form; there is one of {', '.join(FAMILIES)}")
    channels, height, width = model.input_shape
    net = Layers()
    pictures = tf.keras.Input((height, width, channels), batch_size=batch)
    logits = builder(net, pictures, model, classes)
    return KerasNet(tf.keras.Model(pictures, logits), net.parameters)


def _mobilenet_v2(net: Layers, x: Tensor, model: ModelName, classes: int) -> Tensor:
    """Build torchvision's MobileNetV2 without dropout."""
    width = 1.0 if model.width is None else model.width
    channels = round_channels(32 * width)
    x = _relu6(net.batch_norm(net.convolution(x, "features.0.0", channels, 3, 2), "features.0.1"))
    index = 1
    for expansion, base, count, stride in MOBILENET_V2_STAGES:
        outputs = round_channels(base * width)
        for block in range(count):
            step = stride if block == 0 else 1
            y = _inverted_residual(
                net, x, f"features.{index}.conv", (channels, expansion, outputs, step)
            )
            x = layers.Add()([x, y]) if step == 1 and channels == outputs else y
            channels, index = outputs, index + 1
    last = round_channels(1280 * max(1.0, width))
    name = f"features.{index}"
    x = _relu6(net.batch_norm(net.convolution(x, f"{name}.0", last, 1), f"{name}.1"))
    return net.linear(layers.GlobalAveragePooling2D()(x), "classifier.1", classes)


def _inverted_residual(
    net: Layers, x: Tensor, name: str, sizes: tuple[int, int, int, int]
) -> Tensor:
    """Expand, filter, project; `sizes` are input channels, expansion, output channels, stride."""
    channels, expansion, outputs, stride = sizes
    at = 0
    if expansion != 1:
        x = net.convolution(x, f"{name}.0.0", channels * expansion, 1)
        x, at = _relu6(net.batch_norm(x, f"{name}.0.1")), 1
    x = net.depthwise(x, f"{name}.{at}.0", 3, stride)
    x = _relu6(net.batch_norm(x, f"{name}.{at}.1"))
    x = net.convolution(x, f"{name}.{at + 1}", outputs, 1)
    return net.batch_norm(x, f"{name}.{at + 2}")


def _padded(x: Tensor, kernel: int) -> Tensor:
    """Put PyTorch's symmetric zeros round a picture."""
    return layers.ZeroPadding2D(kernel // 2)(x) if kernel > 1 else x


def _relu6(x: Tensor) -> Tensor:
    """Clamp to [0, 6]."""
    return layers.ReLU(6.0)(x)


def round_channels(channels: float, divisor: int = 8) -> int:
    """Round to a multiple of `divisor`, never losing more than a tenth, as torchvision does."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


FAMILIES: dict[str, Callable[[Layers, Tensor, ModelName, int], Tensor]] = {
    "mobilenet_v2": _mobilenet_v2,
}
