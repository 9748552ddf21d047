"""The two common models in Flax."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen

from pockengine.compiler.ir import Graph
from pockengine.frontends.jax import from_jax
from pockengine.tests.zoo import common
from pockengine.tests.zoo.common_measure import report


class ResNet(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        def block(name: str, x: jax.Array) -> jax.Array:
            kh, kw, _, features = common.CONVOLUTIONS[name]
            y = linen.Conv(features, (kh, kw), use_bias=False, name=name)(x)
            return linen.BatchNorm(
                use_running_average=False, momentum=0.9, epsilon=common.EPSILON, name=f"{name}_norm"
            )(y)

        x = linen.relu(block("stem", x))
        y = linen.relu(block("a1", x))
        x = linen.relu(x + block("a2", y))
        x = linen.max_pool(x, (2, 2), (2, 2))
        y = linen.relu(block("b1", x))
        x = linen.relu(block("skip", x) + block("b2", y))
        return linen.Dense(common.CLASSES, name="head")(x.mean((1, 2)))


class Transformer(linen.Module):
    @linen.compact
    def __call__(self, words: jax.Array) -> jax.Array:
        def layer(name: str, x: jax.Array) -> jax.Array:
            return linen.Dense(common.LINEAR[name][1], name=name)(x)

        def norm(name: str, x: jax.Array) -> jax.Array:
            return linen.LayerNorm(epsilon=common.EPSILON, name=name)(x)

        def heads(name: str, x: jax.Array) -> jax.Array:
            return layer(name, x).reshape(*x.shape[:2], common.HEADS, -1)

        x = linen.Embed(common.WORDS, common.WIDTH, name="embedding")(words)
        x = x + self.param("positions", linen.initializers.zeros, (common.LENGTH, common.WIDTH))
        y = norm("before_attention", x)
        query, key, value = (heads(name, y) for name in ("query", "key", "value"))
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(query.shape[-1])
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)
        x = x + layer("out", mixed.reshape(*x.shape))
        y = jax.nn.gelu(layer("wide", norm("before_mlp", x)))
        x = x + layer("narrow", y)
        return layer("head", norm("before_head", x).mean(1))


def variables(model: str, module: linen.Module, x: Any) -> Any:
    """Return the weights as the module's variables."""
    shapes = jax.eval_shape(lambda key: module.init(key, x), jax.random.key(0))
    weights = common.weights(model)
    names = {"scale": "scale", "bias": "shift"}

    def leaf(path: Any, shape: Any) -> Any:
        collection, layer, *kind = (part.key for part in path)
        if collection == "batch_stats":
            return jnp.full(shape.shape, 0.0 if kind == ["mean"] else 1.0)
        if layer in weights:
            return jnp.asarray(weights[layer])
        own = f"{layer.removesuffix('_norm')}.{kind[0]}"
        named = f"{layer.removesuffix('_norm')}.{names.get(kind[0], kind[0])}"
        return jnp.asarray(weights[named if named in weights else own])

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def graph(model: str, module: linen.Module) -> Graph:
    """Import a model with the weights."""
    x = jnp.asarray(common.example(model))
    return from_jax(module, (variables(model, module, x), x), loss="cross_entropy")


def resnet() -> Graph:
    """Import the residual net."""
    return graph("resnet", ResNet())


def transformer() -> Graph:
    """Import the transformer."""
    return graph("transformer", Transformer())


if __name__ == "__main__":
    report({"resnet": resnet, "transformer": transformer})
