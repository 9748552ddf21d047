"""The JAX frontend's table of primitives in our ops."""

from pockengine.frontends.jax.primitives import (
    convolution,
    elementwise,
    indexing,
    matrices,
    ordering,
    pooling,
    ragged,
    reduction,
    shape,
)
from pockengine.frontends.jax.primitives.registry import RULES, JaxContext, Primitive

__all__ = [
    "RULES",
    "JaxContext",
    "Primitive",
    "convolution",
    "elementwise",
    "indexing",
    "matrices",
    "ordering",
    "pooling",
    "ragged",
    "reduction",
    "shape",
]
