"""Keras's losses: by name or as they are, traced together with the model."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pockengine.errors import ImportModelError
from pockengine.frontends.losses import LOSSES


def loss_of(loss: Any) -> Callable[[Any, Any], Any]:
    """Return a function of (target, output) that gives one number."""
    if isinstance(loss, str):
        try:
            loss = keras.losses.get(loss)
        except ValueError:
            raise ImportModelError(
                f"unknown loss {loss!r}; known are {', '.join(LOSSES)}, and the names of "
                "keras.losses"
            ) from None
    if isinstance(loss, keras.losses.Loss):
        if loss.reduction not in ("sum", "mean", "sum_over_batch_size", "mean_with_sample_weight"):
            raise ImportModelError(
                f"the loss {loss.name} has reduction={loss.reduction!r}; a step needs one number: "
                "use 'sum_over_batch_size' or 'sum'"
            )
        return loss
    if not callable(loss):
        raise ImportModelError(
            f"a loss is a name, a loss of Keras or a function of (target, output), not "
            f"{type(loss).__name__}"
        )
    return lambda target, output: tf.reduce_mean(loss(target, output))


def target_spec(loss: Any) -> Callable[[Any], tf.TensorSpec]:
    """Return what the target looks like, given the first output: labels for sparse losses."""
    name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))

    def spec(output: Any) -> tf.TensorSpec:
        shape = output.shape.as_list()
        if "sparse" in str(name):
            return tf.TensorSpec(shape[:-1], np.int64)
        return tf.TensorSpec(shape, np.float32)

    return spec
