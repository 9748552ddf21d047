"""Trained params of JAX models: presets find biases by use; optimizer names are PockEngine's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import NAMED
from pockengine.compiler.sparse.presets import preset
from pockengine.errors import CompileError
from pockengine.frontends.frontend import Source
from pockengine.frontends.registry import find_source
from pockengine.tests.frontends.jax.checks import random

X, TARGET = random(2, 6, 4), np.array([0, 2])
Params = Mapping[str, Mapping[str, jax.Array]]


def loss_of(apply: Callable[[Any, jax.Array], jax.Array]) -> Callable[..., jax.Array]:
    def loss(params: Any, x: jax.Array, target: jax.Array) -> jax.Array:
        return -jnp.mean(jax.nn.log_softmax(apply(params, x))[jnp.arange(2), target])

    return loss


class Net(linen.Module):
    """A Flax net with a layer norm and a GRU cell."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = linen.LayerNorm()(linen.Dense(4)(x))
        x = linen.RNN(linen.GRUCell(5))(x)
        return linen.Dense(3)(x[:, -1])


def flax_net() -> Graph:
    net = Net()
    return graph_of(net.apply, net.init(jax.random.key(0), X))


class Modern(nnx.Module):
    """An nnx net with a batch norm."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first, self.norm = nnx.Linear(4, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.head = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.head(jax.nn.relu(self.norm(self.first(x))).mean(1))


def modern() -> Graph:
    return find_source(Modern(nnx.Rngs(0)), (X,)).graph("cross_entropy")


def haiku_net() -> Graph:
    """A net with Haiku's param names; params are broadcast before use, as Haiku's modules do."""
    params = {
        "net/~/linear": {"w": random(4, 4), "b": random(4)},
        "net/~/layer_norm": {"scale": random(4), "offset": random(4)},
        "net/~/lstm/linear": {"w": random(9, 20), "b": random(20)},
        "net/~/linear_1": {"w": random(5, 3), "b": random(3)},
    }

    def linear(layer: Mapping[str, jax.Array], x: jax.Array) -> jax.Array:
        y = x @ layer["w"]
        return y + jnp.broadcast_to(layer["b"], y.shape)

    def apply(params: Params, x: jax.Array) -> jax.Array:
        x, norm = linear(params["net/~/linear"], x), params["net/~/layer_norm"]
        scale, offset = (jnp.broadcast_to(norm[name], x.shape) for name in ("scale", "offset"))
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        x = scale * jax.lax.rsqrt(variance + 1e-5) * (x - mean) + offset
        hidden = cell = jnp.zeros((2, 5))
        for step in range(2):
            gates = linear(params["net/~/lstm/linear"], jnp.concatenate([x[:, step], hidden], -1))
            i, g, f, o = jnp.split(gates, 4, -1)
            cell = jax.nn.sigmoid(f + 1) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return linear(params["net/~/linear_1"], hidden)

    return graph_of(apply, params)


@partial(jax.tree_util.register_dataclass, data_fields=["weight", "bias"], meta_fields=[])
@dataclass
class Layer:
    """A layer as in Equinox: a pytree that maps one example."""

    weight: jax.Array
    bias: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.weight @ x + self.bias


def equinox_net() -> Graph:
    net = [Layer(random(5, 4), random(5)), Layer(random(3, 5), random(3))]

    def apply(layers: list[Layer], x: jax.Array) -> jax.Array:
        return jax.vmap(lambda row: layers[1](jnp.tanh(layers[0](row))))(x.mean(1))

    return graph_of(apply, net)


def graph_of(apply: Callable[[Any, jax.Array], jax.Array], params: Any) -> Graph:
    return find_source(loss_of(apply), (params, X, TARGET)).graph(None)


FLAX = {"Dense_0.bias", "LayerNorm_0.bias", *(f"GRUCell_0.{x}.bias" for x in ("ir", "iz", "in"))}


@pytest.mark.parametrize(
    ("make", "biases", "head"),
    [
        (
            flax_net,
            {f"params.{name}" for name in (*FLAX, "GRUCell_0.hn.bias")},
            {"params.Dense_1.kernel", "params.Dense_1.bias"},
        ),
        (modern, {"first.bias", "norm.bias"}, {"head.kernel", "head.bias"}),
        (
            haiku_net,
            {"net/~/linear.b", "net/~/layer_norm.offset", "net/~/lstm/linear.b"},
            {"net/~/linear_1.w", "net/~/linear_1.b"},
        ),
        (equinox_net, {"0.bias"}, {"1.weight", "1.bias"}),
    ],
)
def test_bias_only_trains_the_biases_and_the_head(
    make: Callable[[], Graph], biases: set[str], head: set[str]
) -> None:
    graph = make()

    assert set(preset("bias-only", graph).resolve(graph)) == biases | head
    assert set(preset("head-only", graph).resolve(graph)) == head


def source() -> Source:
    return find_source(loss_of(lambda params, x: x @ params), (random(4, 3), X, TARGET))


@pytest.mark.parametrize("name", NAMED)
def test_optimizer_names_are_pockengines(name: str) -> None:
    assert source().optimizer(name) == source().optimizer(name.upper()) == NAMED[name]()


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ("adma", "unknown optimizer 'adma'; known are"),
        (optax.adam, "is no optimizer"),
    ],
)
def test_invalid_optimizers_are_errors(optimizer: Any, words: str) -> None:
    with pytest.raises(CompileError, match=words):
        source().optimizer(optimizer)
