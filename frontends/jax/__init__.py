"""The JAX frontend: jaxprs of functions and Flax modules become graphs."""

from pockengine.frontends.jax.model import from_jax, is_jax, to_pytree

__all__ = ["from_jax", "is_jax", "to_pytree"]
