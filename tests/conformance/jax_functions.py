"""JAX's public functions, with sample calls, through the JAX frontend.

bazel run //tests/conformance:jax_functions -- --only '^lax' --code
"""

from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from pockengine.tests.conformance.functions import command, public_functions
from pockengine.tests.conformance.numpy_samples import numpy_calls, read
from pockengine.tests.fuzz.jax_programs import JaxLanguage

MODULES = {
    "jnp": jnp,
    "jnp.fft": jnp.fft,
    "jnp.linalg": jnp.linalg,
    "jax.nn": jax.nn,
    "lax": lax,
    "jax.ops": jax.ops,
}
"""The modules whose functions have samples."""

TOTAL = "pockengine.tests.conformance.jax_functions.total"


def calls() -> list[str]:
    """Return all samples."""
    found = numpy_calls("jnp", public_functions(jnp))
    found += numpy_calls("jax.nn", public_functions(jax.nn))
    return [*found, *read("jax_functions.txt")]


def total(results: Any) -> Any:
    """Return the sum of all numbers in a pytree, each with a different weight."""
    terms = []
    for leaf in jax.tree_util.tree_leaves(results):
        array = jnp.asarray(leaf)
        parts = [array.real, array.imag] if jnp.iscomplexobj(array) else [array]
        for part in parts:
            weights = np.cos(np.arange(part.size) * 0.7 + 0.2).reshape(part.shape)
            terms.append((part.astype(jnp.float32) * weights.astype(np.float32)).sum())
    return sum(terms[1:], terms[0])


if __name__ == "__main__":
    command(JaxLanguage(), TOTAL, calls, __doc__ or "")()
