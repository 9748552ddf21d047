"""Small TensorFlow and Keras functions: their gradients equal TensorFlow's, or are refused."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow import from_tensorflow

W = np.array([[-2, -1, -0.5, 0.0, 0.3], [1, 2, 6, 7, -8]], np.float32)
V = np.array([[-2, -1, -0.5, 0.0, 0.3], [2, 1, 0, -1, -8]], np.float32)
INDEX = np.array([1, 0, 1], np.int32)
Function = Callable[[Any, Any, Any], Any]
bits = tf.bitwise


def sized(x: Any, *shape: int) -> Any:
    """Set a shape that TensorFlow does not infer."""
    return tf.ensure_shape(x, shape)


def byte(x: Any) -> Any:
    return tf.cast(tf.abs(x) * 31, tf.uint8)


class Both(tf.Module):
    """A loss of two variables: the weighted sum of all results."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.w, self.v = tf.Variable(W, name="w"), tf.Variable(V, name="v")
        self.function = function

    def __call__(self, i: Any) -> Any:
        total = tf.reduce_sum(self.w * 0.25) + tf.reduce_sum(self.v * 0.5)
        for number, result in enumerate(tf.nest.flatten(self.function(self.w, self.v, i))):
            floats = tf.cast(result, tf.float32)
            size = int(np.prod(floats.shape))
            weights = np.cos(np.arange(size) + number).astype(np.float32)
            total += tf.reduce_sum(floats * weights.reshape(floats.shape))
        return total


ACTIVATIONS = "elu gelu leaky_relu log_softmax relu relu6 selu silu softmax softplus softsign"


def separated(x: Any) -> Any:
    """Make a matrix with a pair of complex eigenvalues and well-separated real ones."""
    corners = np.eye(5, k=4) - np.eye(5, k=-4)
    return x / 32 + tf.constant(3 * np.diag(np.arange(5)) + 9 * corners, tf.float32)


def rebuilt(a: Any) -> tuple[Any, ...]:
    """Return products of eigenvectors that do not depend on their order and phases."""
    w, v = tf.linalg.eig(a)
    found = (
        tf.matmul(v, v * w, adjoint_b=True),
        tf.linalg.solve(tf.matmul(v, v, adjoint_b=True), v * w @ tf.linalg.inv(v)),
    )
    return tuple(part(x) for x in found for part in (tf.math.real, tf.math.imag))


FUNCTIONS: dict[str, Function] = {
    name: (lambda w, v, i, name=name: getattr(tf.nn, name)(w)) for name in ACTIVATIONS.split()
} | {
    "abs": lambda w, v, i: tf.abs(w) * v,
    "beta": lambda w, v, i: tf.nn.swish(w, 2.0),
    "bias": lambda w, v, i: tf.nn.bias_add(w, v[0]),
    "bins": lambda w, v, i: sized(tf.math.bincount(tf.minimum(tf.abs(i), 1), minlength=2), 2),
    "bins of lines": lambda w, v, i: sized(
        tf.math.bincount(tf.cast(tf.abs(w), tf.int32), minlength=4, maxlength=4, axis=-1), 2, 4
    ),
    "bins in range": lambda w, v, i: sized(
        tf.math.bincount(i, minlength=3, maxlength=3, binary_output=True), 3
    ),
    "bytes, moved": lambda w, v, i: bits.left_shift(bits.right_shift(byte(w), 2), byte(v) & 7),
    "bytes, wrapped": lambda w, v, i: (byte(w) + byte(v), byte(w) - 200, byte(v) * byte(w)),
    "booleans": lambda w, v, i: tf.cast((w > 0) & (w < 3), tf.float32) * v,
    "casts": lambda w, v, i: tf.cast(tf.cast(w, tf.int32), tf.float32) * v,
    "clip": lambda w, v, i: tf.clip_by_value(w, -1.0, 2.0) * v,
    "cumsum": lambda w, v, i: tf.cumsum(w, axis=1) * v,
    "division": lambda w, v, i: tf.math.divide_no_nan(w, v),
    "einsum": lambda w, v, i: tf.einsum("ab,cb->ac", w, v),
    "entropy": lambda w, v, i: tf.nn.sparse_softmax_cross_entropy_with_logits([1, 3], w),
    "extremes": lambda w, v, i: (tf.reduce_max(w, 1), tf.reduce_min(v)),
    "first index": lambda w, v, i: tf.cast(tf.where(w > 0)[0], tf.float32) * v[:, :2],
    "first index of a column": lambda w, v, i: tf.gather(w[0], tf.where(v > 0)[:, 1][0]),
    "first index of a line": lambda w, v, i: (w[tf.where(v[1] < 1)[0, 0] - 2], tf.where(w[1])[0]),
    "gather": lambda w, v, i: tf.gather(w, i) * 2.0,
    "gather columns": lambda w, v, i: tf.gather(w, i, axis=1),
    "data-dependent index": lambda w, v, i: (
        w[i[0]],
        sized(w[:, -i[0]], 2),
        sized(w[i[0], 1:4], 3),
        sized(w[..., i[0]], 2),
    ),
    "gather of a batch": lambda w, v, i: tf.gather(w, i[:2, None], batch_dims=1, axis=1),
    "floor": lambda w, v, i: tf.floor(w) * v,
    "integers": lambda w, v, i: tf.cast((i * 7 - 9) % 3, tf.float32) * w[0, 0],
    "isfinite": lambda w, v, i: tf.cast(tf.math.is_finite(w), tf.float32) * v,
    "logsumexp": lambda w, v, i: tf.reduce_logsumexp(w, 1),
    "matmul": lambda w, v, i: tf.matmul(w, v, transpose_b=True),
    "maximum": lambda w, v, i: (tf.maximum(w, v), tf.minimum(w, v)),
    "moments": lambda w, v, i: tf.nn.moments(w, [1]),
    "one_hot": lambda w, v, i: tf.one_hot(i + 1, 2) @ w,
    "pad": lambda w, v, i: tf.pad(w, [[1, 0], [0, 2]], constant_values=3.0),
    "power": lambda w, v, i: tf.abs(w + 0.1) ** 1.5 + tf.pow(v, 3),
    "power of negatives": lambda w, v, i: tf.pow(tf.round(w) - 0.5, tf.round(v[0] * 0.1) + 2.0),
    "tails": lambda w, v, i: tf.math.log(tf.math.erfc(tf.tanh(w) + 6.0)),
    "products": lambda w, v, i: tf.reduce_prod(w + 0.1, 1),
    "recompute_grad": lambda w, v, i: tf.recompute_grad(lambda x: tf.sin(x) * v)(w),
    "remainders": lambda w, v, i: tf.math.floormod(w, 3.0) * v,
    "second derivative": lambda w, v, i: tf.gradients(tf.reduce_sum(tf.sin(w) * v), w)[0],
    "select": lambda w, v, i: tf.where(w > v, w, 2 * v),
    "sigmoid entropy": lambda w, v, i: tf.nn.sigmoid_cross_entropy_with_logits(
        tf.constant(np.float32(W > 0)), w
    ),
    "data-dependent slice": lambda w, v, i: (
        sized(w[:, i[0] : i[0] + 3] * v[:, i[0] - 1 : 2 + i[0]], 2, 3),
        tf.slice(v, [i[1], 0], [1, 4]),
        tf.slice(w, tf.stack([i[1], i[0] + 1]), [2, 3]),
        sized(tf.slice(w, i[:2] % 2, [1, 4])[0, i[2] : 1 + i[2]], 1),
    ),
    "slices": lambda w, v, i: (w[:, ::-2], v[1, 1:], w[..., tf.newaxis]),
    "stop_gradient": lambda w, v, i: tf.stop_gradient(w) * v,
    "straight through": lambda w, v, i: (w + tf.stop_gradient(tf.round(w) - w)) * v,
    "tile": lambda w, v, i: tf.tile(w, [2, 3]),
    "transposed": lambda w, v, i: tf.transpose(w) @ v,
    "unstack": lambda w, v, i: tf.unstack(w, axis=1),
    "xlogy": lambda w, v, i: tf.math.xlogy(w[1], v[1] ** 2 + 1),
    "quotient of integers": lambda w, v, i: w * tf.cast(tf.reduce_sum(i / 3), tf.float32),
    "running sums": lambda w, v, i: (
        tf.cumsum(w, 1, reverse=True) * tf.cumsum(v, 1, exclusive=True)
        + tf.cumsum(w, 0, exclusive=True, reverse=True)
    ),
    "special": lambda w, v, i: tf.math.lgamma(tf.abs(w) + 0.3) + tf.math.erfinv(tf.tanh(v) * 0.9),
    "integer quotients": lambda w, v, i: tf.cast(i // 2, tf.float32) * w[0, 0],
    "scatter_nd": lambda w, v, i: tf.scatter_nd(i[:, None], w[0, :3], [4]),
    "segments": lambda w, v, i: (
        tf.math.unsorted_segment_sum(w[0, :3], i - 1, 2),
        tf.math.unsorted_segment_max(w[0, :3], i, 3),
        tf.math.unsorted_segment_mean(v[0, :3], i, 2),
    ),
    "updates": lambda w, v, i: (
        tf.tensor_scatter_nd_update(w * 1.0, [[0]], v[:1]),
        tf.tensor_scatter_nd_add(w * 1.0, [[0, 1], [0, 1], [1, 0]], v[0, :3]),
        tf.tensor_scatter_nd_max(w * 1.0, i[:1, None], v[:1]),
    ),
    "gather_nd": lambda w, v, i: tf.gather_nd(w, tf.stack([i, i * 2], 1)) * 2.0,
    "searchsorted": lambda w, v, i: (
        tf.cast(tf.searchsorted([-1.0, 0.0, 2.0], w[0]), tf.float32) * v[0]
    ),
    "branches": lambda w, v, i: tf.cond(w[0, 0] > 1e9, lambda: tf.math.log(w - 1e9), lambda: w * v),
    "switch_case": lambda w, v, i: tf.switch_case(
        i[0], [lambda: w, lambda: tf.sin(v) * w, lambda: v]
    ),
    "diagonals": lambda w, v, i: (
        tf.linalg.diag(w[0]),
        tf.linalg.diag_part(tf.transpose(w) @ v, k=(0, 1)),
        tf.linalg.set_diag(tf.transpose(w) @ v, v[0]),
    ),
    "factors": lambda w, v, i: (
        tf.linalg.cholesky(tf.transpose(w) @ w + 9.0 * tf.eye(5)),
        tf.linalg.solve(tf.transpose(w) @ w + 9.0 * tf.eye(5), tf.transpose(v)),
        tf.linalg.logdet(tf.transpose(v) @ v + 9.0 * tf.eye(5)),
    ),
    "eigenvalues": lambda w, v, i: (
        tf.sort(tf.abs(tf.linalg.eigvals(separated(tf.transpose(w) @ v)))),
        rebuilt(separated(tf.transpose(w) @ v)),
        rebuilt(tf.complex(separated(tf.transpose(w) @ v), separated(tf.transpose(v) @ w))),
    ),
    "fourier": lambda w, v, i: (
        tf.abs(tf.signal.rfft(w)) * 0.5,
        tf.signal.irfft(tf.signal.rfft(v) * tf.cast(w[:, :3], tf.complex64)),
        tf.math.angle(tf.signal.fft(tf.complex(w, v))),
    ),
    "cumulative products": lambda w, v, i: tf.math.cumprod(w + 0.3, 1, exclusive=True) * v,
    "rolled": lambda w, v, i: tf.roll(w, 1, 1) * v,
    "bits": lambda w, v, i: tf.cast(tf.bitwise.bitwise_xor(i * 5, 3), tf.float32) * w[0, 0],
    "patches": lambda w, v, i: tf.image.extract_patches(
        tf.reshape(w, [1, 2, 5, 1]), [1, 2, 2, 1], [1, 1, 2, 1], [1, 1, 1, 1], "VALID"
    ),
    "resized": lambda w, v, i: tf.image.resize(
        tf.reshape(w, [1, 2, 5, 1]), [3, 3], "bicubic", antialias=True
    ),
    "while": lambda w, v, i: tf.while_loop(
        lambda n, x: n < 3, lambda n, x: (n + 1, tf.tanh(x + v)), (0, w * 1.0)
    )[1],
}


@tf.custom_gradient
def reversed_(x: Any) -> Any:
    return tf.identity(x), lambda dy: -dy


def forbidden(x: Any) -> Any:
    return tf.raw_ops.PreventGradient(input=x, message="stop")


@tf.custom_gradient
def joined(x: Any, y: Any) -> Any:
    """Return results whose gradient rule multiplies their cotangents and reads a result."""
    wave, count = tf.sin(x) * y, tf.constant(3)

    def rule(*slopes: Any) -> Any:
        both = tf.sign(slopes[0] * slopes[2])
        return both * wave, both * 2.0

    return (wave, count, x * 3.0), rule


OWN: dict[str, Function] = {
    "custom_gradient": lambda w, v, i: reversed_(w) * v,
    "another swish": lambda w, v, i: (
        tf.custom_gradient(lambda x: (x * tf.sigmoid(x), lambda dy: dy))(w * 1.0) + v
    ),
    "grad_pass_through": lambda w, v, i: tf.grad_pass_through(tf.round)(w) * v,
    "keras": lambda w, v, i: (
        keras.ops.custom_gradient(lambda x: (x * 1.0, lambda dy, upstream=None: dy * 3.0))(w) + v
    ),
    "of two results": lambda w, v, i: joined(w, v)[0] + 2 * joined(w * 2, v)[2],
    "in a loop": lambda w, v, i: tf.while_loop(
        lambda n, x: n < 2, lambda n, x: (n + 1, reversed_(x) * v), (0, w * 1.0)
    )[1],
}
"""Functions with custom gradients."""


REFUSED: dict[str, tuple[Function, str]] = {
    "bins": (
        lambda w, v, i: tf.reduce_sum(tf.math.bincount(i)),
        "number of bins that depends on data",
    ),
    "bytes": (lambda w, v, i: tf.reduce_max(byte(w)), "Max .*bytes .uint8.; convert"),
    "double": (lambda w, v, i: tf.cast(w, tf.float64) * 2, "Cast .*a cast to float64; use"),
    "open slice": (lambda w, v, i: tf.reduce_sum(w[:, i[0] :]), "size depends on data"),
    "places": (lambda w, v, i: tf.reduce_sum(tf.where(w > 0)), "shape of its result depends"),
    "second index": (lambda w, v, i: tf.where(w > 0)[1], "shape of its result depends"),
    "two ends": (lambda w, v, i: tf.reduce_sum(w[0, i[0] : i[1] + 3]), "size depends on data"),
    "PreventGradient": (lambda w, v, i: forbidden(w), "PreventGradient .*: no gradient may pass"),
    "py_function": (
        lambda w, v, i: tf.ensure_shape(tf.py_function(lambda x: x, [w], tf.float32), w.shape),
        "EagerPyFunc .*calls back into Python",
    ),
    "Poisson noise": (lambda w, v, i: w + tf.random.poisson([2, 5], 1.0), "Poisson.* counts"),
    "data-dependent segments": (
        lambda w, v, i: tf.reshape(tf.math.segment_sum(w[0, :3], i * 0), [1]),
        "SegmentSum.*number depends on data",
    ),
    "a projection": (
        lambda w, v, i: tf.raw_ops.ImageProjectiveTransformV3(
            images=w[None, :, :, None],
            transforms=[[1.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0, 0.0]],
            output_shape=[2, 4],
            fill_value=0.0,
            interpolation="BILINEAR",
        ),
        "a projection of what is trained",
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_a_custom_rule_is_the_gradient(name: str) -> None:
    test_gradient_of_a_function_equals_tensorflow(name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient_of_a_function_equals_tensorflow(name: str) -> None:
    module = Both({**FUNCTIONS, **OWN}[name])
    graph = from_tensorflow(module, {"i": INDEX})
    step = compile_program(graph, Training(optimizer=Sgd()), check=True).entries["train"].graph
    weights = {key: param.data.copy() for key, param in step.params.items()}
    feed = {"i": INDEX, "lr": np.asarray(1, np.float32), "step": np.asarray(1, np.int32)}
    found = run(step, {value.name: feed[value.name] for value in step.inputs}, weights)

    @tf.function
    def expected() -> Any:
        loss = module(tf.constant(INDEX))
        return loss, tf.gradients(loss, [module.w, module.v])

    loss, gradients = expected()
    np.testing.assert_allclose(found["loss"], loss, rtol=2e-5, atol=2e-5)
    for key, start, gradient in zip("wv", (W, V), gradients, strict=True):
        dense = np.asarray(tf.convert_to_tensor(gradient))
        np.testing.assert_allclose(start - weights[key], dense, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_gradients_are_refused(name: str) -> None:
    function, words = REFUSED[name]
    with pytest.raises(ImportModelError, match=words):
        from_tensorflow(Both(function), {"i": INDEX})


class Stepping(keras.Model):
    """A model with a custom training step."""

    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


class Judging(keras.Sequential):
    """A model with a custom loss."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().compute_loss(*args, **kwargs)


def test_custom_training_code_of_a_model_is_refused() -> None:
    x = np.ones((2, 4), np.float32)
    inner = keras.Input((4,))
    stepping = Stepping(inner, layers.Dense(3)(inner), name="net")
    judging = Judging([keras.Input((4,)), layers.Dense(3)], name="net")
    bound = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, kernel_constraint="non_neg", name="head")]
    )

    with pytest.raises(ImportModelError, match=r"net trains by its own Stepping.train_step, which"):
        from_tensorflow(stepping, (x,), loss="mse")
    with pytest.raises(ImportModelError, match=r"net trains by its own Judging.compute_loss"):
        from_tensorflow(judging, (x,), loss="mse")
    with pytest.raises(ImportModelError, match=r"head/kernel has the constraint NonNeg"):
        from_tensorflow(bound, (x,), loss="mse")
    assert from_tensorflow(bound, (x,), training=False).params


class Penalizing(layers.Layer):
    """A layer that adds its own loss."""

    def call(self, x: Any) -> Any:
        self.add_loss(0.1 * keras.ops.mean(x))
        return x


@pytest.mark.parametrize("loss", ["mse", "mean_squared_error"])
def test_every_penalty_of_a_model_counts(loss: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype("f4") for shape in ((2, 4), (2, 3)))
    dense = layers.Dense(
        3, kernel_regularizer="l2", bias_regularizer="l1", activity_regularizer="l2", name="head"
    )
    frozen = layers.Dense(4, kernel_regularizer="l2", trainable=False)
    model = keras.Sequential([keras.Input((4,)), frozen, Penalizing(), dense])
    graph = from_tensorflow(model, (x,), loss=loss)
    entry = compile_program(graph, Training(), check=True).entries["train"].graph
    feed = {graph.inputs[0].name: x, "target": y}
    feed |= {"lr": np.asarray(0.1, np.float32), "step": np.asarray(1, np.int32)}
    params = {name: param.data.copy() for name, param in entry.params.items()}
    found = run(entry, {value.name: feed[value.name] for value in entry.inputs}, params)

    model.compile(keras.optimizers.SGD(0.1), loss="mse", jit_compile=False)
    np.testing.assert_allclose(found["loss"], model.train_on_batch(x, y), rtol=1e-5)
    np.testing.assert_allclose(params[dense.kernel.path], dense.kernel, rtol=1e-4, atol=1e-6)
