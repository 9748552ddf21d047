"""`compile(..., check=True)` of JAX functions and Flax modules."""

from typing import Any

import jax
import numpy as np
import pytest
from flax import linen, nnx
from jax import numpy as jnp

import pockengine
from pockengine.check import CheckWarning
from pockengine.errors import CheckError
from pockengine.frontends.jax.primitives import RULES


class Small(linen.Module):
    drop: float = 0.0

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.Conv(6, (3, 3), name="conv")(x)
        y = jnp.tanh(linen.BatchNorm(use_running_average=False, name="norm")(y))
        y = linen.Dropout(self.drop, deterministic=not self.drop)(y.mean((1, 2)))
        return linen.Dense(5, name="head")(y)


def linen_inputs(module: linen.Module) -> tuple[Any, jax.Array]:
    x = jax.random.normal(jax.random.key(1), (4, 8, 8, 3))
    return module.init({"params": jax.random.key(0), "dropout": jax.random.key(2)}, x), x


def own_loss(params: dict[str, jax.Array], x: jax.Array, scale: float) -> jax.Array:
    return jnp.mean(jnp.tanh(x @ params["w"] + params["b"]) ** 2) * scale


def test_a_linen_module_passes() -> None:
    module = Small()
    pockengine.compile(module, linen_inputs(module), loss="cross_entropy", check=True)


class Shifted(nnx.Module):
    """A module with an array that is in no Variable."""

    def __init__(self) -> None:
        self.inner = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
        self.shift = nnx.data(jnp.ones(4))

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.inner(x) + self.shift


def test_arrays_of_an_nnx_module_in_no_variable_stay() -> None:
    compiled = pockengine.compile(Shifted(), (np.ones((2, 3), np.float32),), loss="mse", check=True)

    assert not compiled.graph.params["shift"].trainable


def test_an_nnx_module_passes() -> None:
    module = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
    pockengine.compile(module, (np.ones((2, 3), np.float32),), loss="mse", check=True)


def test_a_function_with_its_own_loss_passes() -> None:
    params = {"w": jnp.eye(3), "b": jnp.ones(3)}
    pockengine.compile(own_loss, (params, jnp.ones((2, 3)), 0.5), check=True)


def repeated(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    def step(state: tuple[jax.Array, int]) -> tuple[jax.Array, int]:
        return jnp.tanh(state[0] @ params["w"] + x), state[1] + 1

    return jnp.mean(jax.lax.while_loop(lambda state: state[1] < 3, step, (x, 0))[0] ** 2)


def test_a_loop_without_a_gradient_in_jax_passes() -> None:
    pockengine.compile(repeated, ({"w": jnp.eye(3)}, jnp.ones((2, 3))), check=True)


def test_random_numbers_are_checked_by_the_oracle_only() -> None:
    module = Small(drop=0.5)
    with pytest.warns(CheckWarning, match="it draws random numbers"):
        pockengine.compile(module, linen_inputs(module), loss="cross_entropy", check=True)


def test_a_wrong_import_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "tanh", RULES["logistic"])
    params = {"w": jnp.eye(3), "b": jnp.ones(3)}
    with pytest.raises(CheckError, match=r"own_loss: the loss is wrong .* of JAX by 0\.\d+"):
        pockengine.compile(own_loss, (params, jnp.ones((2, 3)), 0.5), check=True)
