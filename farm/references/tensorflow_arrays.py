"""The benchmark's transformers in plain TensorFlow: variables by PyTorch's names, without Keras."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from pockengine.farm.references.job import Tensors
from pockengine.farm.references.layouts import from_channels_last, to_channels_last
from pockengine.farm.references.transformer_nets import transformer
from pockengine.models.registry import parse_model


class TensorFlowArrays:
    """The operations of transformers over variables by name."""

    def __init__(self, variables: dict[str, tf.Variable]) -> None:
        """Take all variables."""
        self.variables = variables

    def param(self, name: str) -> tf.Tensor:
        """Return a parameter."""
        return tf.convert_to_tensor(self.variables[name])

    def constant(self, value: np.ndarray) -> tf.Tensor:
        """Return an array of TensorFlow."""
        return tf.constant(value)

    def take(self, table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Return rows of a table."""
        return tf.gather(table, ids)

    def matmul(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Multiply the last two dimensions; rows of a batch at once where y is a matrix."""
        if len(y.shape) == 2 and len(x.shape) == 3:
            batch, length, width = x.shape
            flat = tf.matmul(tf.reshape(x, (batch * length, width)), y)
            return tf.reshape(flat, (batch, length, y.shape[-1]))
        return tf.matmul(x, y)

    def reshape(self, x: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
        """Return the same elements in another shape."""
        return tf.reshape(x, shape)

    def transpose(self, x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
        """Permute the dimensions."""
        return tf.transpose(x, axes)

    def concat(self, parts: Sequence[tf.Tensor], axis: int) -> tf.Tensor:
        """Join along a dimension."""
        return tf.concat(parts, axis)

    def softmax(self, x: tf.Tensor) -> tf.Tensor:
        """Normalise exponentials over the last dimension."""
        return tf.nn.softmax(x)

    def mean(self, x: tf.Tensor) -> tf.Tensor:
        """Average the last dimension."""
        return tf.reduce_mean(x, -1, keepdims=True)

    def rsqrt(self, x: tf.Tensor) -> tf.Tensor:
        """Return 1 / sqrt(x)."""
        return tf.math.rsqrt(x)

    def gelu(self, x: tf.Tensor) -> tf.Tensor:
        """Return x Phi(x), exactly."""
        return tf.nn.gelu(x, approximate=False)

    def silu(self, x: tf.Tensor) -> tf.Tensor:
        """Return x sigmoid(x)."""
        return tf.nn.silu(x)

    def relu(self, x: tf.Tensor) -> tf.Tensor:
        """Return max(x, 0)."""
        return tf.nn.relu(x)


class TransformerNet:
    """A transformer with its variables."""

    def __init__(self, model: str, weights: Tensors) -> None:
        """Make the variables; FarmError for a family that is not a transformer."""
        self.name = parse_model(model)
        self.weights = weights
        self.variables = {
            name: tf.Variable(tensor) for name, tensor in to_channels_last(weights).items()
        }

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """Return the logits; there is nothing that training changes."""
        return transformer(TensorFlowArrays(self.variables), x, self.name)

    def tensors(self) -> Tensors:
        """Return all parameters by PyTorch's names, in its layouts."""
        arrays = {name: variable.numpy() for name, variable in self.variables.items()}
        return from_channels_last(arrays, self.weights)
