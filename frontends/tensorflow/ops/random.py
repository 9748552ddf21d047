"""TensorFlow's random numbers, drawn by our own counter and the step's seed instead."""

import numpy as np

from pockengine.compiler.ir import I32, TensorType
from pockengine.frontends.emit_activation import SEED
from pockengine.frontends.layout import Tensor, plain
from pockengine.frontends.tensorflow.ops.registry import Context, Opaque, integers, tf_op

STATE = Opaque("the state of TensorFlow's random numbers; draw from it only")


@tf_op("StatelessRandomGetKeyCounter", ignored=(0,))
def key_counter(ctx: Context, _: None) -> list[Opaque]:
    """Return what only the rules below receive, and ignore."""
    return [STATE, STATE]


@tf_op("StatelessRandomGetAlg")
def algorithm(ctx: Context) -> Opaque:
    """Return what only the rules below receive, and ignore."""
    return STATE


@tf_op("StatelessRandomUniformV2", static=(0,), ignored=(1, 2, 3))
@tf_op("StatelessRandomUniform", static=(0,), ignored=(1,))
@tf_op("RandomUniform", static=(0,))
def random_uniform(ctx: Context, shape: np.ndarray, *_: None) -> Tensor:
    """Numbers in [0, 1), each operator from a stream of its own."""
    g = ctx.g
    seed = next((value for value in g.graph.inputs if value.name == SEED), None)
    if seed is None:
        seed = g.input(SEED, TensorType(I32, ()))
    stream = sum(node.op == "random_uniform" for node in g.graph.nodes)
    return plain(g.random_uniform(seed, shape=tuple(integers(shape)), stream=stream))
