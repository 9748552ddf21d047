"""The benchmark models in Keras: the same architecture, weights and numerics as models/ in PyTorch.

Channels-last. PyTorch pads symmetrically, so a convolution is ZeroPadding2D and "valid" ("same"
would put a strided convolution's padding elsewhere). Runs on Keras 2 (TensorFlow 2.15, what an
emulated board has) and Keras 3. Variables have PyTorch's names, so that weights and schemes carry
over.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from pockengine.errors import FarmError
from pockengine.farm.references.job import Tensors
from pockengine.farm.references.nets import BATCH_NORM_EPS, convolutional_net
from pockengine.models.registry import parse_model

layers = tf.keras.layers
Tensor = Any  # Keras 2 and 3 have different symbolic tensors, and neither is typed

# PyTorch weights the old running statistic by 1 - 0.1 at each step.
BATCH_NORM = {"momentum": 0.9, "epsilon": BATCH_NORM_EPS}
# From PyTorch's axes to TensorFlow's: OIHW -> HWIO, depthwise C1HW -> HWC1, linear OI -> IO.
CONVOLUTION, DEPTHWISE, LINEAR, VECTOR = (2, 3, 1, 0), (2, 3, 0, 1), (1, 0), (0,)
CHANNEL_AXIS = {CONVOLUTION: 2, DEPTHWISE: 2, LINEAR: 0, VECTOR: 0}


@dataclass(frozen=True)
class KerasParameter:
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
    parameters: dict[str, KerasParameter]

    def load(self, weights: Tensors) -> None:
        """Assign a state_dict; FarmError names what is missing or left over."""
        names = {name for name in weights if not name.endswith(".num_batches_tracked")}
        odd = sorted(names ^ set(self.parameters))
        if odd:
            where = "the Keras model" if odd[0] in names else "the weights"
            raise FarmError(f"{odd[0]!r} is not in {where} ({len(odd)} names differ)")
        for name, parameter in self.parameters.items():
            parameter.write(weights[name])

    def tensors(self) -> Tensors:
        """Return all parameters and buffers in PyTorch's layouts."""
        return {name: parameter.read() for name, parameter in self.parameters.items()}


class KerasLayers:
    """Applies Keras layers under PyTorch's names and remembers their variables."""

    def __init__(self) -> None:
        """Start without a layer."""
        self.parameters: dict[str, KerasParameter] = {}

    def convolution(
        self, x: Tensor, name: str, filters: int, kernel: int, stride: int = 1
    ) -> Tensor:
        """Convolve without a bias, with padding that keeps the resolution (before the stride)."""
        layer = layers.Conv2D(filters, kernel, stride, "valid", use_bias=False)
        y = layer(_padded(x, kernel))
        self.parameters[f"{name}.weight"] = KerasParameter(layer.kernel, CONVOLUTION)
        return y

    def depthwise(self, x: Tensor, name: str, kernel: int, stride: int) -> Tensor:
        """Filter each channel separately, without a bias."""
        layer = layers.DepthwiseConv2D(kernel, stride, "valid", use_bias=False)
        y = layer(_padded(x, kernel))
        # Keras 2 and 3 call it differently; it is the layer's only variable.
        self.parameters[f"{name}.weight"] = KerasParameter(layer.trainable_weights[0], DEPTHWISE)
        return y

    def batch_norm(self, x: Tensor, name: str) -> Tensor:
        """Normalize each channel."""
        layer = layers.BatchNormalization(**BATCH_NORM)
        y = layer(x)
        self.parameters[f"{name}.weight"] = KerasParameter(layer.gamma, VECTOR)
        self.parameters[f"{name}.bias"] = KerasParameter(layer.beta, VECTOR)
        for buffer, variable in (("mean", layer.moving_mean), ("var", layer.moving_variance)):
            self.parameters[f"{name}.running_{buffer}"] = KerasParameter(variable, VECTOR, True)
        return y

    def linear(self, x: Tensor, name: str, outputs: int) -> Tensor:
        """Multiply by a matrix and add a bias."""
        layer = layers.Dense(outputs)
        y = layer(x)
        self.parameters[f"{name}.weight"] = KerasParameter(layer.kernel, LINEAR)
        self.parameters[f"{name}.bias"] = KerasParameter(layer.bias, VECTOR)
        return y

    def relu(self, x: Tensor, most: float | None = None) -> Tensor:
        """Clamp to [0, most]."""
        return layers.ReLU(most)(x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Add two tensors of one shape."""
        return layers.Add()([x, y])

    def max_pool(self, x: Tensor) -> Tensor:
        """Max pooling of 3x3 by stride 2; zeros are the padding if no element is negative."""
        return layers.MaxPooling2D(3, 2, "valid")(layers.ZeroPadding2D(1)(x))

    def global_average(self, x: Tensor) -> Tensor:
        """Average each channel over its picture."""
        return layers.GlobalAveragePooling2D()(x)


def build_keras(name: str, classes: int, batch: int) -> KerasNet:
    """Build a benchmark model for a batch size; FarmError for a family that has no Keras form.

    The argument `training` of a call says whether batch norms normalize by the batch.
    """
    model = parse_model(name)
    channels, height, width = model.input_shape
    net = KerasLayers()
    pictures = tf.keras.Input((height, width, channels), batch_size=batch)
    logits = convolutional_net(net, pictures, model, classes)
    return KerasNet(tf.keras.Model(pictures, logits), net.parameters)


def _padded(x: Tensor, kernel: int) -> Tensor:
    """Pad a picture with PyTorch's symmetric zeros."""
    return layers.ZeroPadding2D(kernel // 2)(x) if kernel > 1 else x
