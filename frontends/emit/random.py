"""Random numbers in our ops: every draw of a program has its own stream under the step's seed.

The numbers differ from the framework's; their distribution does not.
"""

import math

from pockengine.compiler.controls import SEED
from pockengine.compiler.ir import F32, Builder, Shape, Value
from pockengine.compiler.optim.base import control
from pockengine.frontends import emit
from pockengine.frontends.layout import Tensor, plain

DRAWING = ("dropout", "random_uniform")

LEAST = 2.0**-25
"""Half of the smallest positive uniform number: the minimum argument of a logarithm."""


def seed_input(g: Builder) -> Value:
    """Return the random seed input, which differs at every step."""
    return control(g, SEED)


def next_stream(g: Builder) -> int:
    """Return a stream that no draw of the graph uses yet."""
    used = [node.attrs["stream"] for node in g.graph.nodes if node.op in DRAWING]
    return max(used, default=-1) + 1


def uniform(g: Builder, shape: Shape) -> Tensor:
    """Draw numbers in [0, 1)."""
    return plain(g.random_uniform(seed_input(g), shape=shape, stream=next_stream(g)))


def normal(g: Builder, shape: Shape) -> Tensor:
    """Draw numbers of mean 0 and variance 1."""
    return box_muller(g, uniform(g, shape), uniform(g, shape))


def box_muller(g: Builder, radius: Tensor, angle: Tensor) -> Tensor:
    """Turn two uniform numbers into a normal one, by the Box-Muller transform."""
    positive = emit.arithmetic(g, "sub", 1.0, radius)  # never zero
    squared = emit.arithmetic(g, "mul", emit.unary("log")(g, positive), -2.0)
    turn = emit.arithmetic(g, "mul", angle, 2 * math.pi)
    return emit.arithmetic(g, "mul", emit.unary("sqrt")(g, squared), emit.unary("cos")(g, turn))


def exponential(g: Builder, shape: Shape) -> Tensor:
    """Draw from the exponential distribution of rate 1."""
    positive = emit.arithmetic(g, "sub", 1.0, uniform(g, shape))
    size = emit.unary("neg")(g, emit.unary("log")(g, positive))
    return emit.arithmetic(g, "maximum", size, LEAST)


def bernoulli(g: Builder, shape: Shape, p: emit.Operand) -> Tensor:
    """Draw 1 with probability p, else 0, as floats."""
    return emit.cast(g, emit.arithmetic(g, "lt", uniform(g, shape), p), F32)
