"""Edge cases of TensorFlow's and Keras's functions."""

from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from pockengine.tests.frontends.edges.array_functions import ArrayFunctions
from pockengine.tests.frontends.edges.arrays import (
    ArrayCase,
    Functions,
    cases_of,
    lines,
)
from pockengine.tests.frontends.edges.hard_numbers import INF, NAN

UNARY = """
    tf.abs tf.acos tf.asin tf.atan tf.cos tf.cosh tf.exp tf.floor tf.identity tf.negative tf.round
    tf.sigmoid tf.sign tf.sin tf.sinh tf.sqrt tf.square tf.stop_gradient tf.tan tf.tanh
    tf.math.ceil tf.math.erf tf.math.erfc tf.math.expm1 tf.math.is_finite tf.math.is_inf
    tf.math.is_nan tf.math.log tf.math.log1p
    tf.math.log_sigmoid tf.math.reciprocal tf.math.reciprocal_no_nan tf.math.rint tf.math.rsqrt
    tf.math.softsign tf.nn.elu tf.nn.gelu tf.nn.leaky_relu tf.nn.relu tf.nn.relu6 tf.nn.selu
    tf.nn.silu tf.nn.softplus tf.nn.softmax tf.nn.log_softmax tf.zeros_like tf.ones_like
    ops.celu ops.exp2 ops.hard_shrink ops.hard_sigmoid ops.hard_silu ops.hard_tanh ops.isfinite
    ops.leaky_relu ops.log10 ops.log2 ops.log_sigmoid ops.reciprocal ops.relu ops.relu6
    ops.selu ops.sigmoid ops.silu ops.soft_shrink ops.softplus ops.softsign ops.sparse_plus
    ops.squareplus ops.tanh_shrink ops.gelu ops.elu
"""

BINARY = """
    tf.add tf.subtract tf.multiply tf.divide tf.maximum tf.minimum tf.pow tf.atan2
    tf.math.divide_no_nan tf.math.multiply_no_nan tf.math.squared_difference tf.math.xlogy
    tf.math.floormod tf.equal tf.not_equal tf.less tf.less_equal tf.greater tf.greater_equal
    ops.logaddexp
"""

NUMBERS = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -2.0, 1.5, -3.0, 1e30, INF, -INF, NAN)
WITH_NUMBER = "tf.pow tf.divide tf.multiply tf.maximum tf.minimum tf.math.floormod"
UNUSED = """
    tf.sqrt tf.math.rsqrt tf.math.reciprocal tf.math.log tf.math.log1p tf.asin tf.square tf.tanh
    tf.math.reciprocal_no_nan
"""
"""Functions whose result is also multiplied by zero, so that their cotangent is zero."""

PARAMETERS: Functions = {
    "clip": lambda x: tf.clip_by_value(x, -0.5, 2.0),
    "ops.clip": lambda x: ops.clip(x, -0.5, 2.0),
    "to numbers": lambda x: tf.pow(x[:4], [0.0, 1.0, -1.0, 0.0]),
    "number to x": lambda x: (tf.pow(2.0, x), tf.pow(0.5, x)),
    "zero to x": lambda x: tf.pow(0.0, x),
    "minus two to x": lambda x: tf.pow(-2.0, x),
    "gelu tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "leaky_relu of -0.5": lambda x: tf.nn.leaky_relu(x, -0.5),
    "swish of 2": lambda x: tf.nn.silu(x, 2.0),
    "threshold": lambda x: ops.threshold(x, 0.5, 7.0),
    "where": lambda x: tf.where(x > 1, x, x * x),
    "unsafe where": lambda x: tf.where(x > 0, tf.sqrt(x), 0.0),
    "safe where": lambda x: tf.where(x > 0, tf.math.log(tf.where(x > 0, x, 1.0)), 0.0),
    "to int": lambda x: tf.cast(tf.clip_by_value(tf.where(x == x, x, 0.0), -9, 9), tf.int32),
    "to bool": lambda x: tf.cast(tf.cast(x, tf.bool), tf.float32) * x,
    "relu of Keras": lambda x: keras.layers.ReLU(1.0, 0.1, 0.2)(x),
    "nan_to_num": lambda x: tf.where(tf.math.is_finite(x), x, 0.5),
    "sqrt of square": lambda x: tf.sqrt(x * x),
}

BOOLEANS: Functions = {
    "bool and": lambda a, b: (a & b, a | b, ~a, tf.math.logical_xor(a, b)),
    "bool where": lambda a, b: (tf.where(a & b, a, b), tf.where(a & b, 1.0, 2.0)),
    "bool casts": lambda a, b: (tf.cast(a & b, tf.float32), tf.cast(a | b, tf.int32)),
    "bool equal": lambda a, b: (tf.equal(a, b), tf.not_equal(a, b)),
    "bool any": lambda a, b: (tf.reduce_any(a & b), tf.reduce_all(a | b)),
    "bool shapes": lambda a, b: (tf.concat([a, a & b], 0), tf.tile(a | b, [2])),
    "bool index": lambda a, b: tf.gather(a & b, [3, 0]),
    "bool one_hot": lambda a, b: tf.one_hot(tf.cast(a | b, tf.int32), 2),
}
INTEGERS: Functions = {
    "int arithmetic": lambda a, b: (a + b, a - b, a * b, -a),
    "int extremes": lambda a, b: (tf.maximum(a, b), tf.minimum(a, b), tf.abs(a), tf.sign(a)),
    "int compare": lambda a, b: (a < b, a <= b, a == b, a != b),
    "int casts": lambda a, b: (tf.cast(a, tf.float32), tf.cast(a, tf.bool)),
    "int where": lambda a, b: tf.where(a > b, a, b),
    "int square": lambda a, b: tf.square(a),
    "int remainder": lambda a, b: (a % 7, a % -3),
}
DIVISIONS: Functions = {"int floormod": lambda a, b: a % b}

ROWS: Functions = {
    "sum": lambda x: (tf.reduce_sum(x, 1), tf.reduce_sum(x, 0), tf.reduce_sum(x, 1, True)),
    "mean": lambda x: (tf.reduce_mean(x, 1), tf.reduce_mean(x, 0)),
    "max": lambda x: tf.reduce_max(x, 1),
    "min": lambda x: tf.reduce_min(x, 1),
    "prod": lambda x: tf.reduce_prod(x, 1),
    "std": lambda x: tf.math.reduce_std(x, 1),
    "variance": lambda x: tf.math.reduce_variance(x, 1),
    "ops.std": lambda x: ops.std(x, 1),
    "moments": lambda x: tf.nn.moments(x, [1]),
    "logsumexp": lambda x: tf.reduce_logsumexp(x, 1),
    "softmax": lambda x: tf.nn.softmax(x, 1),
    "log_softmax": lambda x: tf.nn.log_softmax(x, 1),
    "cumsum": lambda x: (tf.cumsum(x, 1), tf.cumsum(x, 0)),
    "argmax": lambda x: (tf.argmax(x, 1), tf.argmin(x, 1)),
    "any": lambda x: (tf.reduce_any(x > 0, 1), tf.reduce_all(x > 0, 1)),
    "norm": lambda x: tf.norm(x, axis=1),
    "norm of 1": lambda x: tf.norm(x, 1, axis=1),
    "norm of infinity": lambda x: tf.norm(x, np.inf, axis=1),
    "ops.norm": lambda x: ops.norm(x, axis=1),
    "normalize": lambda x: ops.normalize(x, 1),
    "l2_normalize": lambda x: tf.math.l2_normalize(x, 1),
    "l2_loss": lambda x: tf.nn.l2_loss(x),
}
WHOLE: Functions = {
    "all max": lambda x: (tf.reduce_max(x), tf.reduce_min(x)),
    "all sum": lambda x: (tf.reduce_sum(x), tf.reduce_mean(x)),
    "all prod": tf.reduce_prod,
    "all std": tf.math.reduce_std,
    "all variance": tf.math.reduce_variance,
    "all norm": tf.norm,
    "all logsumexp": tf.reduce_logsumexp,
    "all softmax": tf.nn.softmax,
    "all cumsum": tf.cumsum,
    "all argmax": lambda x: tf.argmax(x),
}
WHOLE_ROWS: Functions = {
    "int sum": lambda x: (tf.reduce_sum(x), tf.reduce_sum(x, 1), tf.reduce_prod(x, 1)),
    "int max": lambda x: (tf.reduce_max(x, 1), tf.reduce_min(x, 1)),
    "int argmax": lambda x: (tf.argmax(x, 1), tf.argmin(x, 1)),
    "int cumsum": lambda x: tf.cumsum(x, 1),
}

PLACES = np.array([1, 3, 1, 0], np.int32)
INDEXING: Functions = {
    "gather": lambda x, i: tf.gather(x, i) * 2.0,
    "gather columns": lambda x, i: tf.gather(x, i, axis=1),
    "gather of a batch": lambda x, i: tf.gather(x[:4], i[:, None], axis=1, batch_dims=1),
    "take": lambda x, i: ops.take(x, i, axis=0),
    "one_hot": lambda x, i: tf.one_hot(i, 4) @ x[:4],
    "one_hot outside": lambda x, i: tf.one_hot(i * 5 - 2, 4) @ x[:4],
    "known": lambda x, i: tf.gather(x, [2, 0, 2]),
    "slices": lambda x, i: (x[1:3, ::-1], x[..., tf.newaxis, 0], x[-1]),
    "pad": lambda x, i: tf.pad(x, [[1, 0], [0, 2]], constant_values=3.0),
}

LOSSES: Functions = {
    "mse": lambda x, y: keras.losses.mean_squared_error(y, x),
    "mae": lambda x, y: keras.losses.mean_absolute_error(y, x),
    "mape": lambda x, y: keras.losses.mean_absolute_percentage_error(y, x),
    "huber": lambda x, y: keras.losses.huber(y, x, 0.5),
    "log_cosh": lambda x, y: keras.losses.log_cosh(y, x),
    "cosine": lambda x, y: keras.losses.cosine_similarity(y, x),
    "categorical hinge": lambda x, y: keras.losses.categorical_hinge(tf.nn.softmax(y), x),
    "kl": lambda x, y: keras.losses.kl_divergence(tf.nn.softmax(y), tf.nn.softmax(x)),
    "poisson": lambda x, y: keras.losses.poisson(y, tf.nn.softmax(x)),
    "binary": lambda x, y: ops.binary_crossentropy(tf.sigmoid(y), tf.sigmoid(x)),
    "binary logits": lambda x, y: ops.binary_crossentropy(tf.sigmoid(y), x, from_logits=True),
    "sigmoid logits": lambda x, y: tf.nn.sigmoid_cross_entropy_with_logits(tf.sigmoid(y), x),
    "categorical": lambda x, y: ops.categorical_crossentropy(tf.nn.softmax(y), x, from_logits=True),
    "probabilities": lambda x, y: ops.categorical_crossentropy(tf.nn.softmax(y), tf.nn.softmax(x)),
}
ENTROPY: Functions = {
    "sparse": lambda x, i: ops.sparse_categorical_crossentropy(i, x, from_logits=True),
    "sparse probabilities": lambda x, i: ops.sparse_categorical_crossentropy(i, tf.nn.softmax(x)),
    "mean sparse": lambda x, i: tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(i, x)
    ),
}


FUNCTIONS = ArrayFunctions(
    modules={"tf": tf, "ops": ops},
    unary=UNARY,
    binary=BINARY,
    unused=UNUSED,
    with_number=WITH_NUMBER,
    numbers=NUMBERS,
    parameters=PARAMETERS,
    booleans=BOOLEANS,
    integers=INTEGERS,
    divisions=DIVISIONS,
    rows=ROWS,
    whole=WHOLE,
    whole_rows=WHOLE_ROWS,
    losses=LOSSES,
    entropies=ENTROPY,
)


def indexing_cases() -> Iterator[ArrayCase]:
    """Yield reads at indices."""
    yield from cases_of(INDEXING, np.arange(28, dtype=np.float32).reshape(7, 4) - 9, PLACES)
    named = {f"{key} of hard rows": function for key, function in INDEXING.items()}
    yield from cases_of(named, lines(normal=True)[:9], PLACES)


def groups() -> dict[str, list[ArrayCase]]:
    """Return all cases of this file."""
    return FUNCTIONS.groups(indexing_cases())
