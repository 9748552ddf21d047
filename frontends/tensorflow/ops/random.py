"""TensorFlow's random numbers, drawn by our own counter and the step's seed instead."""

import numpy as np

from pockengine.compiler.ir import I32, I64
from pockengine.frontends import emit
from pockengine.frontends.emit import random as emit_random
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.tensorflow.ops.registry import Opaque, TfContext, integers, tf_op

STATE = Opaque("the state of TensorFlow's random numbers; draw from it only")


@tf_op("StatelessRandomGetKeyCounter", ignored=(0,))
def key_counter(ctx: TfContext, _: None) -> list[Opaque]:
    """Return what only the rules below receive, and ignore."""
    return [STATE, STATE]


@tf_op("StatelessRandomGetAlg")
def algorithm(ctx: TfContext) -> Opaque:
    """Return what only the rules below receive, and ignore."""
    return STATE


@tf_op("StatelessRandomUniformV2", static=(0,), ignored=(1, 2, 3))
@tf_op("StatelessRandomUniform", static=(0,), ignored=(1,))
@tf_op("RandomUniform", static=(0,))
def random_uniform(ctx: TfContext, shape: np.ndarray, *_: None) -> Tensor:
    """Numbers in [0, 1), each operator from a stream of its own."""
    return emit_random.uniform(ctx.g, tuple(integers(shape)))


@tf_op("StatelessRandomNormalV2", static=(0,), ignored=(1, 2, 3))
@tf_op("StatelessRandomNormal", static=(0,), ignored=(1,))
@tf_op("RandomStandardNormal", static=(0,))
def random_normal(ctx: TfContext, shape: np.ndarray, *_: None) -> Tensor:
    """Numbers of mean 0 and variance 1, each operator from streams of its own."""
    return emit_random.normal(ctx.g, tuple(integers(shape)))


@tf_op("StatelessRandomUniformIntV2", static=(0, 4, 5), ignored=(1, 2, 3))
def random_integers(
    ctx: TfContext,
    shape: np.ndarray,
    key: None,
    counter: None,
    algorithm: None,
    low: np.ndarray,
    high: np.ndarray,
) -> Tensor:
    """Whole numbers from `low` on, below `high`."""
    count = int(high) - int(low)
    if not 0 < count <= 1 << 23:
        raise Unsupported(f"whole numbers drawn from {count}; a float counts up to {1 << 23}")
    unit = emit_random.uniform(ctx.g, tuple(integers(shape)))
    place = emit.unary("floor")(ctx.g, emit.arithmetic(ctx.g, "mul", unit, float(count)))
    dtype = I64 if low.dtype == np.int64 else I32
    return emit.arithmetic(ctx.g, "add", emit.cast(ctx.g, place, dtype), int(low))
