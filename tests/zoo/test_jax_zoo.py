"""Some models of JAX's zoo (`//tests/zoo:jax_zoo` has all), the common models, and names.

Names in JAX's pytrees and functions cannot inject code into generated C.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from pockengine.compiler.ir import Graph
from pockengine.frontends.jax import from_jax
from pockengine.tests.backends.c.tokens import ATTACKS, check_names
from pockengine.tests.zoo.common_jax import resnet, transformer
from pockengine.tests.zoo.common_measure import check
from pockengine.tests.zoo.framework_step import compared
from pockengine.tests.zoo.jax_zoo import ZOO
from pockengine.tests.zoo.verdict import PASSED, judge

SOME = ["binary", "equinox-like", "experts", "quantiles"]


@pytest.mark.parametrize("name", SOME)
def test_step_matches_the_framework(name: str) -> None:
    verdict = judge(ZOO[name], compared)

    assert verdict.kind == PASSED, verdict.words


@pytest.mark.parametrize("build", [resnet, transformer])
def test_common_model_matches_our_own_ops(build: Callable[[], Graph]) -> None:
    check("jax", build.__name__, build())


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
def test_names_change_no_token(attack: str) -> None:
    check_names(net, [attack])
