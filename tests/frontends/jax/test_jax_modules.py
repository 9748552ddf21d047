"""One step of many kinds of Flax modules, and of optax's optimizers, compared with JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.jax import from_jax, to_pytree
from pockengine.tests.frontends.jax.checks import LR, check_tree, oracle_losses, random
from pockengine.tests.frontends.jax.nets import variables_of


class Of(linen.Module):
    """Wrap a function as a module."""

    function: Callable[..., Any]

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return self.function(x)


def causal(x: jax.Array) -> jax.Array:
    mask = linen.make_causal_mask(jnp.ones(x.shape[:2]))
    return linen.MultiHeadDotProductAttention(2)(x, mask=mask)


def tied(words: jax.Array) -> jax.Array:
    embedding = linen.Embed(7, 4)
    return embedding.attend(embedding(words))


ROWS, PICTURE = (2, 5, 4), (2, 6, 6, 3)
MODULES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "lstm": (lambda x: linen.RNN(linen.LSTMCell(8))(x), ROWS),
    "gru": (lambda x: linen.RNN(linen.GRUCell(8), reverse=True)(x), ROWS),
    "causal_attention": (causal, ROWS),
    "group_norm": (lambda x: linen.GroupNorm(2)(linen.Dense(8)(x)), PICTURE),
    "rms_norm": (lambda x: linen.RMSNorm()(linen.Dense(8)(x)), ROWS),
    "transposed": (lambda x: linen.ConvTranspose(4, (3, 3), (2, 2))(x), PICTURE),
    "dilated": (lambda x: linen.Conv(4, (3, 3), kernel_dilation=2, padding="CIRCULAR")(x), PICTURE),
    "causal_line": (lambda x: linen.Conv(4, (3,), padding="CAUSAL")(x), ROWS),
    "several_dimensions": (lambda x: linen.DenseGeneral((2, 3), axis=(-2, -1))(x), ROWS),
    "remat": (lambda x: linen.remat(linen.Dense)(4)(x), ROWS),
}

VOLUME, PICTURES = (2, 4, 4, 4, 3), (2, 3, 5, 5, 2)
LAYERS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "BatchNorm": (lambda x: linen.BatchNorm(use_running_average=True)(x), PICTURE),
    "Bidirectional": (
        lambda x: linen.Bidirectional(linen.RNN(linen.GRUCell(3)), linen.RNN(linen.GRUCell(3)))(x),
        ROWS,
    ),
    "Conv": (lambda x: linen.Conv(6, (2, 2, 2), 2, feature_group_count=3)(x), VOLUME),
    "ConvLSTMCell": (lambda x: linen.RNN(linen.ConvLSTMCell(3, (3, 3)))(x), PICTURES),
    "ConvLocal": (lambda x: linen.ConvLocal(4, (3, 3))(x), PICTURE),
    "ConvTranspose": (
        lambda x: linen.ConvTranspose(4, (3, 3), (2, 2), "CIRCULAR", transpose_kernel=True)(x),
        PICTURE,
    ),
    "Dense": (
        lambda x: linen.vmap(linen.Dense, {"params": 0}, split_rngs={"params": True})(3)(x),
        ROWS,
    ),
    "DenseGeneral": (lambda x: linen.DenseGeneral(3, batch_dims=(0,))(x), ROWS),
    "Dropout": (lambda x: linen.Dropout(0.5, deterministic=True)(linen.Dense(3)(x)), ROWS),
    "Einsum": (lambda x: linen.Einsum((4, 3, 2), "abc,cde->abde")(x), ROWS),
    "Embed": (lambda x: linen.Embed(7, 4)((jnp.abs(x[..., 0]) * 2).astype(int)), ROWS),
    "GRUCell": (lambda x: linen.RNN(linen.GRUCell(3), unroll=2, time_major=True)(x), ROWS),
    "GroupNorm": (lambda x: linen.GroupNorm(None, group_size=3)(x), PICTURE),
    "InstanceNorm": (lambda x: linen.InstanceNorm()(x), PICTURE),
    "LSTMCell": (lambda x: linen.RNN(linen.LSTMCell(3), return_carry=True)(x)[1], ROWS),
    "LayerNorm": (
        lambda x: linen.LayerNorm(reduction_axes=(-2, -1), feature_axes=(-2, -1))(x),
        ROWS,
    ),
    "MGUCell": (lambda x: linen.RNN(linen.MGUCell(3))(x), ROWS),
    "MultiHeadAttention": (lambda x: linen.MultiHeadAttention(2, qkv_features=4)(x, x), ROWS),
    "MultiHeadDotProductAttention": (causal, ROWS),
    "OptimizedLSTMCell": (lambda x: linen.RNN(linen.OptimizedLSTMCell(3))(x), ROWS),
    "PReLU": (lambda x: linen.PReLU()(linen.Dense(3)(x)), ROWS),
    "RMSNorm": (lambda x: linen.RMSNorm()(x), ROWS),
    "RNN": (
        lambda x: linen.RNN(linen.LSTMCell(3), reverse=True, keep_order=True)(
            x, seq_lengths=jnp.array([3, 5])
        ),
        ROWS,
    ),
    "SelfAttention": (lambda x: linen.SelfAttention(2)(x), ROWS),
    "Sequential": (
        lambda x: linen.Sequential([linen.Dense(3), linen.relu, linen.Dense(2)])(x),
        ROWS,
    ),
    "SimpleCell": (lambda x: linen.RNN(linen.SimpleCell(4, residual=True))(x), ROWS),
    "SpectralNorm": (lambda x: linen.SpectralNorm(linen.Dense(4))(x, update_stats=False), ROWS),
    "WeightNorm": (lambda x: linen.WeightNorm(linen.Dense(4))(x), ROWS),
}
NO_LAYERS = {"Module", "RNNCellBase"}
"""Base classes."""


def check_step(module: linen.Module, x: np.ndarray) -> None:
    """Compare one SGD step on the mean square of a module's output with JAX's.

    Statistics stay frozen.
    """
    variables = variables_of(module, x)

    def loss(variables: Any, x: Any) -> Any:
        return jnp.square(module.apply(variables, x)).mean()

    graph = from_jax(loss, (variables, x))
    (found,), params = oracle_losses(graph, [{"x": x}])
    expected, grads = jax.jit(jax.value_and_grad(loss))(variables, x)

    np.testing.assert_allclose(found, expected, rtol=1e-5)
    trained = jax.tree.map(lambda p, g: p - LR * g, variables["params"], grads["params"])
    tuned = {**variables, "params": trained}
    check_tree(to_pytree(graph, params, variables), tuned, rtol=1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_linen_layer_trains_as_in_jax(name: str) -> None:
    function, shape = LAYERS[name]
    check_step(Of(function), random(*shape))


def test_every_linen_layer_is_covered() -> None:
    public = {
        name
        for name, layer in vars(linen).items()
        if isinstance(layer, type) and issubclass(layer, linen.Module) and "Fp8" not in name
    }
    assert public == LAYERS.keys() | NO_LAYERS


def test_fp8_is_refused_by_name() -> None:
    layer = linen.Dense(4, dot_general_cls=linen.Fp8DirectDotGeneralOp)
    x = random(4, 4)
    with pytest.raises(ImportModelError, match="elements of type float8_e4m3fn"):
        from_jax(lambda v, x: layer.apply(v, x), (variables_of(layer, x), x))


@pytest.mark.parametrize("name", MODULES)
def test_module_trains_as_in_jax(name: str) -> None:
    function, shape = MODULES[name]
    check_step(Of(function), random(*shape))


def test_tied_embedding_trains_as_in_jax() -> None:
    check_step(Of(tied), np.array([[1, 2, 6], [0, 2, 2]], np.int32))


OPTIMIZERS = {
    "adafactor": optax.adafactor(0.01),
    "adamw_by_schedule": optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)),
    "every_second_step": optax.MultiSteps(optax.sgd(0.1), 2),
    "lamb": optax.lamb(0.01),
    "lion": optax.lion(0.01),
    "rmsprop": optax.rmsprop(0.01, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optax_steps_are_compiled_unchanged(name: str) -> None:
    optimizer: Any = OPTIMIZERS[name]
    params, x = {"w": random(4, 6), "b": random(6)}, random(3, 4)

    def step(params: Any, slots: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            return jnp.square(x @ params["w"] + params["b"]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, slots = optimizer.update(grads, slots, params)
        return optax.apply_updates(params, updates), slots, value

    slots = optimizer.init(params)
    graph = from_jax(step, (params, slots, x), carried=2)
    weights = {key: param.data for key, param in graph.params.items()}
    reference = jax.jit(step)
    for _ in range(3):
        run(graph, {"x": x}, weights)
        params, slots, _ = reference(params, slots, x)

    check_tree(to_pytree(graph, weights, params, "params"), params, rtol=1e-4)
