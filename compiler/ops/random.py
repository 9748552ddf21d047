"""Counter-based random numbers: element i of stream s is a pure function of i, s and the seed.

A recomputed or resumed step therefore draws the same numbers, on every backend, bit for bit. The
hash is two rounds of the 32-bit mixer `lowbias32` with constants found by TheIronBorn
(github.com/skeeto/hash-prospector, issue 19: bias 0.107).
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32, I32, Shape, TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]
STREAM_STEP = 0x9E3779B9
"""Distance of the streams' keys: 2^32 over the golden ratio, odd, so that no two coincide."""

NOISE_STREAM = 1 << 16
"""The first stream for internal draws; a model's own draws are numbered from 0."""


MIXER = ((16, 0x21F0AAAD), (15, 0xD35A2D97), (15, 1))
"""Steps of one round: exclusive or with the number shifted right by this many bits, then a
product.
"""


def mix(x: np.ndarray) -> np.ndarray:
    """One round of the mixer on uint32 numbers."""
    for shift, factor in MIXER:
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return np.asarray(x)


def stream_key(seed: int, stream: int) -> np.ndarray:
    """Return the hash that all numbers of a stream share, a uint32."""
    with np.errstate(over="ignore"):
        return mix(np.asarray((seed ^ stream * STREAM_STEP) & 0xFFFFFFFF, np.uint32))


def uniform(seed: int, stream: int, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) with 24 random bits each, shape (count,) f32."""
    with np.errstate(over="ignore"):
        bits = mix(mix(np.arange(count, dtype=np.uint32)) + stream_key(seed, stream))
    return ((bits >> np.uint32(8)).astype(np.float32)) * np.float32(2**-24)


def _infer(types: Types, attrs: Attrs) -> Types:
    (seed,) = types
    if seed != TensorType(I32, ()):
        raise GraphError(f"random_uniform needs a scalar i32 seed, not {seed}")
    return (TensorType(F32, attrs["shape"]),)


def _eval(arrays: Arrays, attrs: Attrs) -> Arrays:
    shape = attrs["shape"]
    flat = uniform(int(arrays[0]), attrs["stream"], int(np.prod(shape)))
    return (flat.reshape(shape),)


define(
    "random_uniform",
    "seed",
    attrs={"shape": REQUIRED, "stream": REQUIRED},
    infer=_infer,
    eval=_eval,
)


def _infer_dropout(types: Types, attrs: Attrs) -> Types:
    x, seed = types
    if seed != TensorType(I32, ()) or x.dtype is not F32:
        raise GraphError(f"dropout needs f32 and a scalar i32 seed, not {x} and {seed}")
    if not 0 <= attrs["p"] <= 1:
        raise GraphError(f"dropout drops a share in [0, 1], not {attrs['p']}")
    return (x,)


def _eval_dropout(arrays: Arrays, attrs: Attrs) -> Arrays:
    x, seed = arrays
    mask = uniform(int(seed), attrs["stream"], x.size).reshape(x.shape) >= np.float32(attrs["p"])
    return (np.where(mask, x * np.float32(scale_up(attrs["p"])), np.float32(0)),)


def scale_up(p: float) -> float:
    """Return the factor of what a dropout of share p leaves: 1 / (1 - p), or 0 if p is 1."""
    return 1 / (1 - p) if p < 1 else 0.0


def _dropout_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Drop the same elements of dy: the mask is drawn again instead of saved."""
    return g.dropout(dy, node.operands[1], **node.attrs)


define(
    "dropout",
    "x seed",
    attrs={"p": REQUIRED, "stream": REQUIRED},
    infer=_infer_dropout,
    eval=_eval_dropout,
    vjp={"x": _dropout_dx},
    linear=(0,),
)


def normal(g: "Builder", seed: Value, shape: Shape, stream: int) -> Value:
    """Draw numbers of mean 0 and variance 1 from two streams (Box-Muller)."""
    radius, angle = (
        g.random_uniform(seed, shape=shape, stream=each) for each in (stream, stream + 1)
    )
    logarithm = g.log(g.sub(g.scalar(1.0), radius))  # log of zero never occurs
    turned = g.cos(g.mul(angle, g.scalar(2 * math.pi)))
    return g.mul(g.sqrt(g.mul(logarithm, g.scalar(-2.0))), turned)
