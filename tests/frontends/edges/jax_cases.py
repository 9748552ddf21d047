"""Edge cases of JAX's functions: elementwise, reductions, indexing, losses."""

from collections.abc import Iterator

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp

from pockengine.tests.frontends.edges.array_functions import ArrayFunctions
from pockengine.tests.frontends.edges.arrays import (
    ArrayCase,
    Functions,
    cases_of,
    lines,
)
from pockengine.tests.frontends.edges.hard_numbers import INF, NAN

UNARY = """
    jnp.abs jnp.arccos jnp.arccosh jnp.arcsin jnp.arcsinh jnp.arctan jnp.arctanh jnp.ceil
    jnp.cos jnp.cosh jnp.exp jnp.exp2 jnp.expm1 jnp.floor jnp.isfinite jnp.isinf jnp.isnan jnp.log
    jnp.log10 jnp.log1p jnp.log2 jnp.logical_not jnp.nan_to_num jnp.negative jnp.reciprocal
    jnp.round jnp.sign jnp.sin jnp.sinc jnp.sinh jnp.sqrt jnp.square jnp.tan jnp.tanh
    jnp.trunc jnp.deg2rad jnp.zeros_like jnp.ones_like
    lax.erf lax.erfc lax.rsqrt lax.logistic lax.stop_gradient lax.is_finite
    jax.nn.celu jax.nn.elu jax.nn.gelu jax.nn.hard_sigmoid jax.nn.hard_swish jax.nn.hard_tanh
    jax.nn.leaky_relu jax.nn.log_sigmoid jax.nn.mish jax.nn.relu jax.nn.relu6 jax.nn.selu
    jax.nn.sigmoid jax.nn.silu jax.nn.soft_sign jax.nn.softplus jax.nn.sparse_plus
    jax.nn.squareplus jax.nn.log_softmax jax.nn.softmax
"""

BINARY = """
    jnp.add jnp.subtract jnp.multiply jnp.divide jnp.maximum jnp.minimum jnp.fmax jnp.fmin
    jnp.power jnp.arctan2 jnp.hypot jnp.logaddexp jnp.logaddexp2 jnp.fmod
    jnp.remainder jnp.floor_divide jnp.heaviside
    lax.max lax.min lax.rem lax.pow lax.atan2
    jnp.equal jnp.not_equal jnp.less jnp.less_equal jnp.greater jnp.greater_equal
    jnp.logical_and jnp.logical_or jnp.logical_xor jnp.isclose
"""

NUMBERS = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -2.0, 1.5, -3.0, 1e30, INF, -INF, NAN)
WITH_NUMBER = "jnp.power jnp.divide jnp.multiply jnp.maximum jnp.minimum jnp.remainder jnp.fmod"

PARAMETERS: Functions = {
    **{f"to the {n}": (lambda x, n=n: x**n) for n in range(-4, 6)},
    **{f"integer_pow {n}": (lambda x, n=n: lax.integer_pow(x, n)) for n in range(-4, 6)},
    "to an integer array": lambda x: lax.pow(x, jnp.full(x.shape, -2)),
    "to integers": lambda x: lax.pow(x[:3], jnp.array([0, 1, -1])),
    "a number to x": lambda x: (jnp.power(2.0, x), jnp.power(0.5, x)),
    "zero to x": lambda x: jnp.power(0.0, x),
    "minus two to x": lambda x: jnp.power(-2.0, x),
    "clip": lambda x: jnp.clip(x, -0.5, 2.0),
    "clip above": lambda x: jnp.clip(x, None, 0.0),
    "clip min > max": lambda x: jnp.clip(x, 2.0, -0.5),
    "clip by arrays": lambda x: jnp.clip(x, -x, x),
    "lax.clamp": lambda x: lax.clamp(-0.5, x, 2.0),
    "lax.clamp of arrays": lambda x: lax.clamp(x - 1, x, x + 1),
    "where": lambda x: jnp.where(x > 1, x, x * x),
    "where of a log": lambda x: jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1.0)), 0.0),
    "unsafe where": lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0),
    "select": lambda x: lax.select(x > 0, x, -x),
    "gelu exact": lambda x: jax.nn.gelu(x, approximate=False),
    "elu of 0.5": lambda x: jax.nn.elu(x, 0.5),
    "leaky_relu of -0.5": lambda x: jax.nn.leaky_relu(x, -0.5),
    "glu": lambda x: jax.nn.glu(x.reshape(2, -1), 0),
    "nan_to_num of numbers": lambda x: jnp.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-2.0),
    "to int": lambda x: x.astype(jnp.int32),
    "to bool": lambda x: x.astype(bool) * x,
    "rounded away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "rounded to decimals": lambda x: jnp.round(x, 1),
    "sqrt of square": lambda x: jnp.sqrt(x * x),
    "log of softmax": lambda x: jnp.log(jax.nn.softmax(x)),
}
UNUSED = "jnp.sqrt jnp.log lax.rsqrt jnp.reciprocal jnp.arcsin jnp.arctanh jnp.square"
"""Functions whose result is also multiplied by zero, so that their cotangent is zero."""

BOOLEANS: Functions = {
    "bool mul": lambda a, b: a * b,
    "bool add": lambda a, b: (a + b, ~(a * b)),
    "bool bits": lambda a, b: (a & b, a | b, a ^ b, ~a),
    "bool compare": lambda a, b: (a < b, a <= b, a == b, a != b, a > b, a >= b),
    "bool extremes": lambda a, b: (jnp.maximum(a, b), jnp.minimum(a, b)),
    "bool where": lambda a, b: (jnp.where(a * b, a, b), jnp.where(a * b, 1.0, 2.0)),
    "bool casts": lambda a, b: ((a * b).astype("float32"), (a + b).astype("int32"), a + 1, b * 3),
    "bool sums": lambda a, b: ((a * b).sum(), (a + b).mean(), a.prod(), a.max(), b.min()),
    "bool any": lambda a, b: ((a * b).any(), (a + b).all()),
    "bool cumsum": lambda a, b: (a + b).cumsum(),
    "bool argmax": lambda a, b: (a * b).argmax(),
    "bool shapes": lambda a, b: (jnp.concatenate([a, a * b]), a[::-1], jnp.tile(a + b, 2)),
    "bool index": lambda a, b: ((a * b)[jnp.array([3, 0])], jnp.pad(a, 1)),
}

INTEGERS: Functions = {
    "int arithmetic": lambda a, b: (a + b, a - b, a * b, -a),
    "int extremes": lambda a, b: (jnp.maximum(a, b), jnp.minimum(a, b), abs(a), jnp.sign(a)),
    "int compare": lambda a, b: (a < b, a <= b, a == b, a != b),
    "int casts": lambda a, b: (a.astype("float32"), a.astype(bool), a / 7),
    "int powers": lambda a, b: (a**2, a**3),
    "int clip": lambda a, b: (jnp.clip(a, -5, 5), jnp.where(a > b, a, b)),
    "int by numbers": lambda a, b: (a // 7, a // -3, a % 7, a % -3, lax.div(a, 7), lax.rem(a, -3)),
    "int division": lambda a, b: (lax.div(a, b), lax.rem(a, b)),
}
DIVISIONS: Functions = {
    "int floor division": lambda a, b: (a // b, a % b, jnp.fmod(a, b)),
}

ROWS: Functions = {
    "sum": lambda x: (x.sum(1), x.sum(0), x.sum(1, keepdims=True)),
    "mean": lambda x: (x.mean(1), x.mean(0)),
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(1),
    "max of columns": lambda x: x.max(0),
    "argmax": lambda x: (x.argmax(1), x.argmin(1), x.argmax(), x.argmin()),
    "prod": lambda x: x.prod(1),
    "std": lambda x: x.std(1),
    "var": lambda x: x.var(1),
    "var corrected": lambda x: x.var(1, ddof=1),
    "logsumexp": lambda x: jax.nn.logsumexp(x, 1),
    "softmax of rows": lambda x: jax.nn.softmax(x, 1),
    "log_softmax of rows": lambda x: jax.nn.log_softmax(x, 1),
    "softmax with a mask": lambda x: jax.nn.softmax(x, 1, where=x > 0),
    "cumsum": lambda x: (x.cumsum(1), x.cumsum(0)),
    "any": lambda x: (x.any(1), x.all(1)),
    "norm": lambda x: jnp.linalg.norm(x, axis=1),
    "norm of 1": lambda x: jnp.linalg.norm(x, 1, axis=1),
    "norm of infinity": lambda x: jnp.linalg.norm(x, jnp.inf, axis=1),
    "normalize": lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True),
    "standardize": lambda x: jax.nn.standardize(x, 1),
    "ptp": lambda x: jnp.ptp(x, 1),
    "nansum": lambda x: jnp.nansum(x, 1),
    "nanmax": lambda x: jnp.nanmax(x, 1),
    "sum with a mask": lambda x: jnp.sum(x, 1, where=x > 0),
    "max with a mask": lambda x: jnp.max(x, 1, where=x > 0, initial=-1.0),
    "diff": lambda x: jnp.diff(x, axis=1),
    "glu of rows": lambda x: jax.nn.glu(x, 1),
}
WHOLE: Functions = {
    "all max": lambda x: (x.max(), x.min()),
    "all sum": lambda x: (x.sum(), x.mean()),
    "all prod": lambda x: x.prod(),
    "all std": lambda x: x.std(),
    "all var": lambda x: x.var(),
    "all norm": jnp.linalg.norm,
    "all logsumexp": jax.nn.logsumexp,
    "all softmax": jax.nn.softmax,
    "all cumsum": jnp.cumsum,
    "all argmax": jnp.argmax,
}
WHOLE_ROWS: Functions = {
    "int sum": lambda x: (x.sum(), x.sum(1), x.prod(1)),
    "int max": lambda x: (x.max(1), x.min(1), x.max()),
    "int cumsum": lambda x: x.cumsum(1),
    "int argmax": lambda x: (x.argmax(1), x.argmin(1)),
    "int any": lambda x: (x.any(1), x.all(1)),
}

PLACES = np.array([1, 9, -1, -9, 1, 0], np.int32)
"""Indices: inside, outside, from the end, repeated."""
INSIDE = np.array([2, 0, 3], np.int32)
INDEXING: Functions = {
    "take": lambda x, i: jnp.take(x, i, axis=0),
    "take clip": lambda x, i: jnp.take(x, i, axis=0, mode="clip"),
    "take wrap": lambda x, i: jnp.take(x, i, axis=0, mode="wrap"),
    "brackets": lambda x, i: x[i],
    "promise": lambda x, i: x.at[i].get(mode="promise_in_bounds"),
    "columns": lambda x, i: x[:, i],
    "pairs": lambda x, i: x[i, i],
    "add": lambda x, i: x.at[i].add(2.0 * x[:6]),
    "add clip": lambda x, i: x.at[i].add(2.0 * x[:6], mode="clip"),
    "set": lambda x, i: x.at[i].set(2.0 * x[:6]),
    "max": lambda x, i: x.at[i].max(x[1:7]),
    "min": lambda x, i: x.at[i].min(x[1:7]),
    "segment_sum": lambda x, i: jax.ops.segment_sum(x[:6], i, 4),
    "one_hot": lambda x, i: jax.nn.one_hot(i, 4) @ jnp.where(jnp.isfinite(x), x, 0)[:4],
    "take_along": lambda x, i: jnp.take_along_axis(x[:6], i[:, None], 1),
    "dynamic_slice": lambda x, i: lax.dynamic_slice(x, (i[1], i[3]), (2, 2)),
}
UNIQUE: Functions = {
    "multiply": lambda x, i: x.at[i].multiply(x[3:6], unique_indices=True),
    "divide": lambda x, i: x.at[i].divide(x[3:6], unique_indices=True),
    "set unique": lambda x, i: x.at[i].set(x[3:6], unique_indices=True),
    "add promise": lambda x, i: x.at[i].add(x[3:6], mode="promise_in_bounds"),
    "set promise": lambda x, i: x.at[i].set(x[3:6], mode="promise_in_bounds"),
    "max promise": lambda x, i: x.at[i].max(x[3:6], mode="promise_in_bounds"),
    "max unique": lambda x, i: x.at[i].max(x[3:6], unique_indices=True),
}

LOSSES: Functions = {
    "squared_error": lambda x, y: optax.squared_error(x, y),
    "l2_loss": lambda x, y: optax.l2_loss(x, y),
    "huber": lambda x, y: optax.huber_loss(x, y, delta=1.0),
    "log_cosh": lambda x, y: optax.log_cosh(x, y),
    "absolute": lambda x, y: jnp.abs(x - y),
    "cosine": lambda x, y: optax.cosine_similarity(x, y, epsilon=1e-6),
    "cross entropy": lambda x, y: optax.softmax_cross_entropy(x, jax.nn.softmax(y)),
    "sigmoid entropy": lambda x, y: optax.sigmoid_binary_cross_entropy(x, y),
    "hinge": lambda x, y: optax.hinge_loss(x, jnp.sign(y)),
    "kl": lambda x, y: optax.kl_divergence(jax.nn.log_softmax(x), jax.nn.softmax(y)),
    "smooth labels": lambda x, y: optax.smooth_labels(jax.nn.softmax(y), 0.1),
}
ENTROPY: Functions = {
    "whole entropy": lambda x, i: optax.softmax_cross_entropy_with_integer_labels(x, i),
    "mean entropy": lambda x, i: optax.softmax_cross_entropy_with_integer_labels(x, i).mean(),
}


FUNCTIONS = ArrayFunctions(
    modules={"jnp": jnp, "lax": lax, "jax": jax},
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
    """Yield reads and writes at indices."""
    finite = np.arange(28, dtype=np.float32).reshape(7, 4) - 9
    for name, table in (("", finite), (" of hard rows", lines(normal=True)[:9])):
        named = {f"{key}{name}": function for key, function in INDEXING.items()}
        yield from cases_of(named, table, PLACES)
    yield from cases_of(UNIQUE, lines(finite=True, normal=True), INSIDE)


def groups() -> dict[str, list[ArrayCase]]:
    """Return all cases of this file."""
    return FUNCTIONS.groups(indexing_cases())
