"""TensorFlow's random numbers, drawn by our own counter and the step's seed instead."""

import numpy as np

from pockengine.compiler.ir import I32, I64
from pockengine.frontends import emit
from pockengine.frontends.dtypes import known_dtype
from pockengine.frontends.emit import distributions
from pockengine.frontends.emit import random as emit_random
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain
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


@tf_op("StatelessTruncatedNormalV2", static=(0,), ignored=(1, 2, 3))
@tf_op("StatelessTruncatedNormal", static=(0,), ignored=(1,))
@tf_op("TruncatedNormal", static=(0,))
def truncated_normal(ctx: TfContext, shape: np.ndarray, *_: None) -> Tensor:
    """Normal numbers that are no farther from 0 than 2."""
    return distributions.truncated_normal(ctx.g, tuple(integers(shape)))


@tf_op("StatelessRandomGammaV3", static=(0,), ignored=(1, 2, 3))
def stateless_gamma(
    ctx: TfContext, shape: np.ndarray, key: None, counter: None, algorithm: None, alpha: Tensor
) -> Tensor:
    """Numbers of the gamma distribution, of scale 1; alpha is broadcast to the shape."""
    return distributions.gamma(ctx.g, tuple(integers(shape)), alpha)


@tf_op("RandomGamma", static=(0,))
def gamma(ctx: TfContext, shape: np.ndarray, alpha: Tensor) -> Tensor:
    """Draw an array of this shape from the gamma distribution, for each alpha."""
    return distributions.gamma(ctx.g, (*integers(shape), *alpha.shape), alpha)


@tf_op("StatelessMultinomial", static=(1,), ignored=(2,))
@tf_op("Multinomial", static=(1,))
def multinomial(
    ctx: TfContext, logits: Tensor, count: np.ndarray, *_: None, output_dtype: np.dtype
) -> Tensor:
    """Draw indices of each row of logits."""
    drawn = distributions.categorical(ctx.g, logits, int(count), replacement=True)
    return emit.cast(ctx.g, drawn, known_dtype(output_dtype, f"places of {output_dtype}"))


@tf_op("RandomShuffle")
def shuffle(ctx: TfContext, x: Tensor) -> Tensor:
    """The slices of the first dimension in a random order."""
    order = distributions.permutation(ctx.g, x.shape[0])
    return plain(ctx.g.take(framework_order(ctx.g, x), order.value, axis=0))


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
    """Draw integers in [low, high)."""
    count = int(high) - int(low)
    if not 0 < count <= 1 << 23:
        raise Unsupported(f"whole numbers drawn from {count}; a float counts up to {1 << 23}")
    unit = emit_random.uniform(ctx.g, tuple(integers(shape)))
    place = emit.unary("floor")(ctx.g, emit.arithmetic(ctx.g, "mul", unit, float(count)))
    dtype = I64 if low.dtype == np.int64 else I32
    return emit.arithmetic(ctx.g, "add", emit.cast(ctx.g, place, dtype), int(low))
