"""Names of JAX's pytrees and functions stay names in generated C, whatever text they are."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from pockengine.compiler.ir import Graph
from pockengine.frontends.jax import from_jax
from pockengine.tests.backends.c.tokens import ATTACKS, check_names


def net(name: Callable[[str], str]) -> Graph:
    def inner(weight: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ weight)

    inner.__name__ = inner.__qualname__ = name("inner")

    def loss(params: dict[str, dict[str, jax.Array]], x: jax.Array) -> jax.Array:
        with jax.named_scope(name("scope")):
            y = jax.jit(inner)(params[name("layer")][name("weight")], x)
        return jnp.mean((y + params[name("layer")][name("bias")]) ** 2)

    loss.__name__ = loss.__qualname__ = name("loss")
    params = {name("layer"): {name("weight"): jnp.ones((3, 4)), name("bias"): jnp.ones(4)}}
    return from_jax(loss, (params, jnp.ones((2, 3))))


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_a_name_changes_no_token(attack: str) -> None:
    check_names(net, [attack])
