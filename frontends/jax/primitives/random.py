"""Random numbers: JAX's keys become streams of our counter-based numbers.

A key that is an argument has no numbers, only an identity. Each key that a program derives from it
(split, folded, sliced) has a name made of how it was derived, and each name a stream under the
step's `seed`. The numbers differ from JAX's; their distribution does not, and the same key gives
the same numbers, so that recomputed code draws what it drew before. The step's seed already differs
from step to step: a number that is known only then, such as the step's own, adds nothing to a key
that it is folded into but a name.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.ir import I64, Shape
from pockengine.frontends import emit
from pockengine.frontends.emit import distributions
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.random import box_muller, seed_input
from pockengine.frontends.jax.primitives.registry import JaxContext
from pockengine.frontends.layout import Tensor, plain

WIDTH, HALF = 32, 1 << 16
"""Bits per draw, and the modulus of half of them."""


@dataclass(frozen=True)
class Key:
    """A random key, or an array of them, identified by its derivation."""

    path: tuple[Hashable, ...]

    def derived(self, primitive: str, *how: Any) -> "Key":
        """Return the key that a primitive derives from this one."""
        return Key((*self.path, primitive, *(_hashable(part) for part in how)))


def _hashable(part: Any) -> Hashable:
    if isinstance(part, Key):
        return part.path
    if isinstance(part, Tensor):
        return part.value.name
    return part.tobytes() if isinstance(part, np.ndarray) else str(part)


def uniform(ctx: JaxContext, key: Key, low: Tensor, high: Tensor) -> Tensor:
    """Draw numbers in [low, high)."""
    unit = _unit(ctx, key, "uniform", ctx.shape)
    bounds = [ctx.g.graph.constants.get(bound.value) for bound in (low, high)]
    if all(bound is not None and bound.size == 1 for bound in bounds):
        least, most = (float(bound.flat[0]) for bound in bounds if bound is not None)
        if (least, most) == (0.0, 1.0):
            return unit
    width = emit.arithmetic(ctx.g, "sub", high, low)
    return emit.arithmetic(ctx.g, "add", emit.arithmetic(ctx.g, "mul", unit, width), low)


def normal(ctx: JaxContext, key: Key) -> Tensor:
    """Draw normal numbers, by the Box-Muller transform."""
    return box_muller(
        ctx.g, _unit(ctx, key, "radius", ctx.shape), _unit(ctx, key, "angle", ctx.shape)
    )


def gamma(ctx: JaxContext, key: Key, alpha: Tensor, *, log_space: bool, **_: Any) -> Tensor:
    """Draw numbers of the gamma distribution of scale 1, or their logarithms."""

    def draw(use: str, shape: Shape) -> Tensor:
        return _unit(ctx, key, use, shape)

    size = distributions.log_gamma(ctx.g, ctx.shape, alpha, draw)
    return size if log_space else emit.unary("exp")(ctx.g, size)


def bits(ctx: JaxContext, key: Key, *, bit_width: int, shape: Shape, **_: Any) -> Tensor:
    """Draw 32-bit integers, half of them from each of two streams."""
    if bit_width != WIDTH:
        raise Unsupported(f"random bits of {bit_width}; draw {WIDTH} and convert")
    halves = [_half(ctx, key, use, shape) for use in ("high", "low")]
    high = emit.arithmetic(ctx.g, "mul", halves[0], HALF)
    return emit.arithmetic(ctx.g, "add", high, halves[1])


def _half(ctx: JaxContext, key: Key, use: str, shape: Shape) -> Tensor:
    drawn = emit.weighted(ctx.g, _unit(ctx, key, use, shape), float(HALF))
    return emit.cast(ctx.g, emit.unary("floor")(ctx.g, drawn), I64)


DRAWN: dict[str, Callable[..., Tensor]] = {"random_bits": bits, "random_gamma": gamma}
"""Primitives that draw by a key."""


def _unit(ctx: JaxContext, key: Key, use: str, shape: Shape) -> Tensor:
    stream = ctx.stream((*key.path, use, shape))
    return plain(ctx.g.random_uniform(seed_input(ctx.g), shape=shape, stream=stream))
