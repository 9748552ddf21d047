"""The JAX frontend: jaxprs of functions and Flax modules become graphs."""

from pockengine.frontends.jax.model import (
    carried_of,
    from_jax,
    is_jax,
    parameters_of,
    resize_examples,
    to_pytree,
)

__all__ = ["carried_of", "from_jax", "is_jax", "parameters_of", "resize_examples", "to_pytree"]
