"""Small Flax models: a convolutional net, a residual net with batch norm, a transformer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx


class Cnn(linen.Module):
    """Strided and depthwise convolutions, max and average pooling: (N, 12, 12, 3) to 5 classes."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = linen.relu(linen.Conv(8, (3, 3), strides=2)(x))
        x = linen.gelu(linen.Conv(8, (3, 3), feature_group_count=8)(x))
        x = linen.max_pool(x, (3, 3), (2, 2), padding="SAME")
        x = linen.silu(linen.Conv(12, (1, 1), use_bias=False)(x))
        x = linen.avg_pool(x, (3, 3), (1, 1), padding="VALID")
        return linen.Dense(5)(x.reshape(x.shape[0], -1))


class Block(linen.Module):
    """Two convolutions with batch norm and a skip connection, a convolution if sizes change."""

    features: int
    stride: int

    @linen.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        def norm(y: jax.Array) -> jax.Array:
            return linen.BatchNorm(use_running_average=not train, momentum=0.9)(y)

        y = linen.Conv(self.features, (3, 3), self.stride, use_bias=False)(x)
        y = linen.relu(norm(y))
        y = norm(linen.Conv(self.features, (3, 3), use_bias=False)(y))
        if x.shape != y.shape:
            x = norm(linen.Conv(self.features, (1, 1), self.stride, use_bias=False)(x))
        return linen.relu(x + y)


class ResNet(linen.Module):
    """A stem, two residual blocks, a mean: (N, 8, 8, 3) to 5 classes."""

    @linen.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        x = linen.Conv(8, (3, 3), use_bias=False)(x)
        x = linen.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        x = Block(8, 1)(linen.relu(x), train)
        x = Block(12, 2)(x, train)
        return linen.Dense(5)(x.mean((1, 2)))


class Transformer(linen.Module):
    """Embedding with positions, two pre-norm encoder layers, a mean: (N, 6) words to 5 classes."""

    dropout: float = 0.0

    @linen.compact
    def __call__(self, words: jax.Array, train: bool = False) -> jax.Array:
        x = linen.Embed(20, 16)(words)
        x = x + self.param("positions", linen.initializers.normal(0.1), (6, 16))
        for _ in range(2):
            y = linen.LayerNorm()(x)
            y = linen.MultiHeadDotProductAttention(num_heads=2)(y)
            x = x + linen.Dropout(self.dropout, deterministic=not train)(y)
            y = linen.gelu(linen.Dense(32)(linen.LayerNorm()(x)))
            x = x + linen.Dense(16)(y)
        return linen.Dense(5)(linen.LayerNorm()(x).mean(1))


class NnxNet(nnx.Module):
    """An nnx net of a convolution, batch norm and dropout: (N, 8, 8, 3) to 5 classes."""

    def __init__(self, rngs: nnx.Rngs, dropout: float = 0.0) -> None:
        self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(dropout, rngs=rngs)
        self.head = nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = jax.nn.relu(self.norm(self.conv(x)))
        return self.head(self.drop(x.mean((1, 2))))


def variables_of(module: linen.Module, *inputs: Any) -> Any:
    """Return variables for a module: random weights, scales near 1, shifts near 0.

    NumPy draws them: a module's own init takes seconds to compile.
    """
    shapes = jax.eval_shape(lambda key: module.init(key, *inputs), jax.random.key(0))
    rng = np.random.default_rng(0)

    def filled(path: Any, leaf: Any) -> jax.Array:
        noise = rng.standard_normal(leaf.shape).astype(np.float32)
        if leaf.ndim > 1:
            return jnp.asarray(noise / np.sqrt(np.prod(leaf.shape[:-1])))
        around = 1 if path[-1].key in ("scale", "var") else 0
        return jnp.asarray(around + 0.1 * noise)

    return jax.tree_util.tree_map_with_path(filled, shapes)
