"""TensorFlow's random numbers, drawn by our own counter and the step's seed instead."""

import numpy as np

from pockengine.frontends.emit import random as emit_random
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
