"""TensorFlow's own loss and gradients on the example inputs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pockengine.frontends.losses import LOSSES, TARGET
from pockengine.frontends.probabilities import LEAST, takes_logarithm
from pockengine.frontends.reference import SEED, Nudge, Reference, draw_target
from pockengine.frontends.tensorflow.losses import target_spec, terms_of
from pockengine.frontends.tensorflow.saved import load
from pockengine.frontends.tensorflow.trace import Arguments, arguments_of, named_results, subject_of
from pockengine.frontends.tensorflow.variables import named_variables


def reference(model: Any, example_inputs: Any, loss: Any, nudge: Nudge) -> Reference | None:
    """Run the model and a GradientTape once, and put its variables back; None for TFLite.

    Layers of noise are to be off already, by `without_noise`.
    """
    if isinstance(model, (str, Path)):
        if Path(model).suffix == ".tflite":
            return None
        model = load(Path(model))
    subject = subject_of(model, True)
    arguments = arguments_of(subject, example_inputs)
    arrays = [nudge(x) if x.dtype == np.float32 else x for x in arguments.arrays]
    feed = dict(zip(arguments.names, arrays, strict=True))
    tensors = [tf.constant(x) for x in arrays]
    with _restored(subject.variables, nudge), tf.GradientTape() as tape:
        with tape.stop_recording():
            predicted = _predicted(model, arguments, tensors) if subject.model is not None else {}
        results = named_results(arguments.passed(subject, tensors))
        value = _loss(results, loss, feed, subject.model)
        penalties = list(getattr(subject.model, "losses", ()))
        if penalties:
            value += tf.add_n(penalties)
    watched = tape.watched_variables()
    own = list(subject.variables)
    variables = {id(getattr(variable, "value", variable)) for variable in own}
    named = named_variables([*own, *(v for v in watched if id(v) not in variables)])
    handles = {id(getattr(v, "value", v)): name for name, v in named.items()}
    try:
        grads = tape.gradient(value, watched, unconnected_gradients="zero")
    except LookupError:  # TensorFlow has no gradient of one of its operators
        return Reference(feed, float(value), None, predicted)
    gradients = {
        handles[id(variable)]: np.asarray(tf.convert_to_tensor(grad))
        for variable, grad in zip(watched, grads, strict=True)
        if id(variable) in handles
    }
    return Reference(feed, float(value), gradients, predicted)


def _predicted(model: Any, arguments: Arguments, tensors: list[Any]) -> dict[str, np.ndarray]:
    """Return the outputs of a Keras model in inference mode by name."""
    results = named_results(arguments.passed(subject_of(model, False), tensors))
    return {name: np.asarray(x) for name, x in results.items()}


@contextmanager
def without_noise(model: Any) -> Iterator[None]:
    """Temporarily disable noise in a Keras model: dropout, also of cells, and Gaussian noise."""
    strengths = [
        (layer, name, getattr(layer, name))
        for layer in getattr(model, "_flatten_layers", list)()
        for name in _strengths(layer)
    ]
    for layer, name, _ in strengths:
        setattr(layer, name, 0.0)
    try:
        yield
    finally:
        for layer, name, strength in strengths:
            setattr(layer, name, strength)


def _strengths(layer: Any) -> tuple[str, ...]:
    """Return the attributes of a layer that set the strength of its noise."""
    if isinstance(layer, keras.layers.GaussianNoise):
        return ("stddev",)
    if isinstance(layer, (keras.layers.SimpleRNNCell, keras.layers.GRUCell, keras.layers.LSTMCell)):
        return ("dropout", "recurrent_dropout")
    if isinstance(layer, keras.layers.Attention):
        return ("dropout",)
    named = "Dropout" in type(layer).__name__ and isinstance(getattr(layer, "rate", None), float)
    return ("rate",) if named else ()


@contextmanager
def _restored(variables: list[Any], nudge: Nudge) -> Iterator[None]:
    """Nudge the trained variables, and restore all variables at the end."""
    before = [np.array(variable.numpy()) for variable in variables]
    for variable, array in zip(variables, before, strict=True):
        if variable.trainable and array.dtype == np.float32:
            variable.assign(nudge(array))
    try:
        yield
    finally:
        for variable, array in zip(variables, before, strict=True):
            variable.assign(array)


def _loss(
    results: dict[str, Any], loss: Any, feed: dict[str, np.ndarray], model: Any = None
) -> Any:
    """Return the loss of the call's result; targets that are drawn join the feed."""
    first = next(iter(results.values()))
    if loss is None:
        return results.get("loss", first)
    if not isinstance(loss, str) or loss not in LOSSES:
        total = 0.0
        for term in terms_of(loss, list(results), model):
            output = results[term.output]
            feed[term.target] = _target(target_spec(term.loss, output), output)
            total += term.of(tf.constant(feed[term.target]), output)
        return total
    first = tf.cast(first, tf.float32)  # a result of 16 bits
    feed[TARGET] = draw_target(loss, tuple(first.shape))
    if loss == "mse":
        return tf.reduce_mean((first - feed[TARGET]) ** 2)
    order = [0, *range(2, first.shape.rank), 1]  # the classes are second in every frontend
    if takes_logarithm(loss, first.numpy()):
        first = tf.math.log(tf.maximum(first, LEAST))
    logits = tf.transpose(first, order)
    return tf.reduce_mean(
        keras.losses.sparse_categorical_crossentropy(feed[TARGET], logits, from_logits=True)
    )


def _target(spec: tf.TensorSpec, output: Any) -> np.ndarray:
    """Draw labels of the last dimension's classes, or shares that sum to one."""
    rng = np.random.default_rng(SEED)
    if spec.dtype == tf.int64:
        return rng.integers(output.shape[-1], size=tuple(spec.shape))
    shares = rng.random(tuple(spec.shape)).astype(np.float32) + np.float32(0.1)
    total = shares.sum(-1, keepdims=True)
    return shares / total if shares.shape[-1] > 1 else shares / np.float32(1.1)
