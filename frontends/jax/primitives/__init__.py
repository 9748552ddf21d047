"""The table of the JAX frontend: what each primitive of a jaxpr means in our ops."""

from pockengine.frontends.jax.primitives import (
    convolution,
    elementwise,
    indexing,
    matrices,
    ordering,
    pooling,
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
    "reduction",
    "shape",
]
