"""Models of JAX: Flax's linen and nnx, modules that are pytrees, functions of parameters.

bazel run //tests/zoo:jax_zoo -- [--only PATTERN ...]
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from jax import lax

from pockengine.tests.zoo.framework_step import Subject, compared
from pockengine.tests.zoo.verdict import command

CLASSES = 5


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def params(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Draw parameters by name, divided by the square root of their fan-in."""
    return {name: random(*shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}


class Cnn(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = linen.relu(linen.Conv(8, (3, 3), strides=2)(x))
        x = linen.gelu(linen.GroupNorm(4)(linen.Conv(8, (3, 3), feature_group_count=8)(x)))
        x = linen.max_pool(x, (2, 2), (2, 2))
        return linen.Dense(CLASSES)(x.reshape(x.shape[0], -1))


class Lstm(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        forward, backward = (linen.RNN(linen.LSTMCell(6)) for _ in range(2))
        return linen.Dense(CLASSES)(linen.Bidirectional(forward, backward)(x)[:, -1])


class Transformer(linen.Module):
    @linen.compact
    def __call__(self, words: jax.Array) -> jax.Array:
        x = linen.Embed(30, 8)(words)
        mask = linen.make_causal_mask(words)
        x = x + linen.MultiHeadDotProductAttention(2)(linen.LayerNorm()(x), mask=mask)
        x = x + linen.Dense(8)(linen.swish(linen.Dense(16)(linen.RMSNorm()(x))))
        return linen.Dense(CLASSES)(x.mean(1))


class Autoencoder(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        code = linen.tanh(linen.Conv(4, (3, 3), strides=2)(x))
        return linen.ConvTranspose(3, (4, 4), strides=(2, 2))(code)


class Residual(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.body = nnx.Conv(8, 8, (3, 3), rngs=rngs)
        self.norm = nnx.LayerNorm(8, rngs=rngs)
        self.head = nnx.Linear(8, CLASSES, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.relu(self.stem(x))
        return self.head((x + nnx.silu(self.norm(self.body(x)))).mean((1, 2)))


@dataclass
class Dense:
    """A module that is a pytree of arrays and an activation, as in Equinox."""

    weight: Any
    bias: Any
    activation: Callable[..., Any] = jax.nn.tanh

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.activation(x @ self.weight + self.bias)


jax.tree_util.register_dataclass(Dense, ["weight", "bias", "activation"], [])


@jax.custom_vjp
def sign(x: jax.Array) -> jax.Array:
    """Binarize; the gradient passes through where |x| < 1."""
    return jnp.sign(x)


sign.defvjp(lambda x: (jnp.sign(x), x), lambda x, dy: (jnp.where(jnp.abs(x) < 1, dy, 0),))


def binary(p: Any, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ sign(p["first"])) @ sign(p["second"])


def experts(p: Any, x: jax.Array) -> jax.Array:
    """Mix the top two of four experts for each row."""
    shares, places = lax.top_k(jax.nn.softmax(x @ p["gate"]), 2)
    every = jnp.einsum("bi,eio->beo", x, p["experts"])
    chosen = jnp.take_along_axis(every, places[:, :, None], axis=1)
    return (chosen * shares[:, :, None]).sum(1)


def recurrent(p: Any, x: jax.Array) -> jax.Array:
    """Scan a gated unit over time."""

    def step(h: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
        gate = jax.nn.sigmoid(row @ p["wz"] + h @ p["uz"])
        return gate * h + (1 - gate) * jnp.tanh(row @ p["wh"] + h @ p["uh"]), None

    last, _ = lax.scan(step, jnp.zeros((x.shape[1], 6)), x)
    return last @ p["head"]


def linear_attention(p: Any, x: jax.Array) -> jax.Array:
    """Causal linear attention by running sums."""
    q, k, v = (jax.nn.elu(x @ p[name]) + 1 for name in "qkv")
    state = jnp.cumsum(jnp.einsum("bti,btj->btij", k, v), axis=1)
    scale = jnp.einsum("bti,bti->bt", q, jnp.cumsum(k, axis=1))
    return (jnp.einsum("bti,btij->btj", q, state) / scale[..., None]).mean(1) @ p["head"]


def quantiles(p: Any, x: jax.Array) -> jax.Array:
    """Score rows by their sorted features and running maxima."""
    y = x @ p["first"]
    return jnp.concatenate([jnp.sort(y, axis=1), lax.cummax(y, axis=1)], axis=1) @ p["second"]


def graph_net(p: Any, x: jax.Array) -> jax.Array:
    """Pass messages along edges, aggregated by the maximum at each node."""
    sent = (x @ p["first"])[np.array([0, 1, 2, 3, 4, 5, 2])]
    best = jnp.full((6, 8), -9.0).at[np.array([1, 2, 3, 4, 5, 0, 5])].max(sent)
    return jnp.tanh(best) @ p["second"]


def of_linen(module: linen.Module, *inputs: np.ndarray, loss: str = "cross_entropy") -> Subject:
    return Subject(module, (module.init(jax.random.key(0), *inputs), *inputs), loss)


def equinox_like() -> Subject:
    layers = [Dense(random(6, 8), np.zeros(8, np.float32)), Dense(random(8, 5), random(5))]

    def stacked(modules: list[Dense], x: jax.Array) -> jax.Array:
        return jax.vmap(lambda row: modules[1](modules[0](row)))(x)

    return Subject(stacked, (layers, random(4, 6)))


ZOO = {
    "cnn": lambda: of_linen(Cnn(), random(2, 12, 12, 3)),
    "lstm": lambda: of_linen(Lstm(), random(3, 5, 4)),
    "transformer": lambda: of_linen(Transformer(), np.arange(12, dtype=np.int32).reshape(2, 6)),
    "autoencoder": lambda: of_linen(Autoencoder(), random(2, 8, 8, 3), loss="mse"),
    "nnx-residual": lambda: Subject(Residual(nnx.Rngs(0)), (random(2, 8, 8, 3),)),
    "equinox-like": equinox_like,
    "binary": lambda: Subject(binary, (params(first=(6, 8), second=(8, 5)), random(4, 6))),
    "experts": lambda: Subject(experts, (params(gate=(6, 4), experts=(4, 6, 5)), random(4, 6))),
    "recurrent": lambda: Subject(
        recurrent,
        (params(wz=(4, 6), uz=(6, 6), wh=(4, 6), uh=(6, 6), head=(6, 5)), random(5, 3, 4)),
    ),
    "linear-attention": lambda: Subject(
        linear_attention, (params(q=(4, 6), k=(4, 6), v=(4, 6), head=(6, 5)), random(2, 7, 4))
    ),
    "quantiles": lambda: Subject(quantiles, (params(first=(6, 8), second=(16, 5)), random(4, 6))),
    "graph-net": lambda: Subject(graph_net, (params(first=(4, 8), second=(8, 5)), random(6, 4))),
}

if __name__ == "__main__":
    command(ZOO, compared)()
