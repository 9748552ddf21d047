"""The benchmark's transformers in plain TensorFlow: variables by PyTorch's names, without Keras."""

from functools import partial

import tensorflow as tf

from pockengine.farm.references.job import Tensors
from pockengine.farm.references.layouts import from_channels_last, to_channels_last
from pockengine.farm.references.transformer_nets import Arrays, transformer
from pockengine.models.registry import parse_model


def _matmul(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Multiply the last two dimensions; rows of a batch at once where y is a matrix."""
    if len(y.shape) == 2 and len(x.shape) == 3:
        batch, length, width = x.shape
        flat = tf.matmul(tf.reshape(x, (batch * length, width)), y)
        return tf.reshape(flat, (batch, length, y.shape[-1]))
    return tf.matmul(x, y)


def _arrays(variables: dict[str, tf.Variable]) -> Arrays:
    """Return the operations of transformers over variables by name."""
    return Arrays(
        param=lambda name: tf.convert_to_tensor(variables[name]),
        constant=tf.constant,
        take=tf.gather,
        matmul=_matmul,
        reshape=tf.reshape,
        transpose=tf.transpose,
        concat=tf.concat,
        softmax=tf.nn.softmax,
        mean=partial(tf.reduce_mean, axis=-1, keepdims=True),
        rsqrt=tf.math.rsqrt,
        gelu=partial(tf.nn.gelu, approximate=False),
        silu=tf.nn.silu,
        relu=tf.nn.relu,
        tanh=tf.tanh,
    )


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
        return transformer(_arrays(self.variables), x, self.name)

    def tensors(self) -> Tensors:
        """Return all parameters by PyTorch's names, in its layouts."""
        arrays = {name: variable.numpy() for name, variable in self.variables.items()}
        return from_channels_last(arrays, self.weights)
