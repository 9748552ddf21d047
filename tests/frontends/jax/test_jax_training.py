"""Ten training steps compared with JAX and optax: losses, weights, export."""

from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from pockengine.compiler.optim import Sgd
from pockengine.frontends.jax import from_jax, to_pytree
from pockengine.tests.frontends.jax.checks import (
    LR,
    batches_of,
    check_tree,
    cross_entropy,
    oracle_losses,
    reference_losses,
)
from pockengine.tests.frontends.jax.nets import Cnn, NnxNet, ResNet, Transformer, variables_of


def test_cnn_trains_as_in_jax() -> None:
    module, batches = Cnn(), batches_of((4, 12, 12, 3))
    variables = variables_of(module, batches[0][0])

    def loss(variables: Any, x: Any, y: Any) -> Any:
        return cross_entropy(module.apply(variables, x), y), {}

    graph = from_jax(module, (variables, batches[0][0]), loss="cross_entropy")
    feeds = [{"x": x, "target": y} for x, y in batches]
    found, params = oracle_losses(graph, feeds)
    expected, tuned = reference_losses(loss, variables, batches, optax.sgd(LR))

    np.testing.assert_allclose(found, expected, rtol=1e-4)
    check_tree(to_pytree(graph, params, variables), tuned)


def test_residual_net_trains_as_in_jax_with_its_running_statistics() -> None:
    module, batches = ResNet(), batches_of((4, 8, 8, 3))
    variables = variables_of(module, batches[0][0], True)

    def loss(variables: Any, x: Any, y: Any) -> Any:
        logits, others = module.apply(variables, x, True, mutable=["batch_stats"])
        return cross_entropy(logits, y), others

    graph = from_jax(module, (variables, batches[0][0], True), loss="cross_entropy")
    feeds = [{"x": x, "target": y} for x, y in batches]
    found, params = oracle_losses(graph, feeds)
    expected, tuned = reference_losses(loss, variables, batches, optax.sgd(LR))

    assert [node.op for node in graph.nodes].count("batch_norm") == 6
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    check_tree(to_pytree(graph, params, variables), tuned)


def test_transformer_trains_as_in_jax_with_its_own_loss() -> None:
    module, batches = Transformer(), batches_of((4, 6), words=20)
    variables = variables_of(module, batches[0][0])

    def loss(params: Any, words: Any, labels: Any) -> Any:
        return cross_entropy(module.apply(params, words), labels)

    x, y = batches[0]
    graph = from_jax(loss, (variables, x, y))
    feeds = [{"words": x, "labels": y.astype(np.int32)} for x, y in batches]
    found, params = oracle_losses(graph, feeds, Sgd(momentum=0.9, nesterov=True))
    optimizer = optax.sgd(LR, momentum=0.9, nesterov=True)
    expected, tuned = reference_losses(
        lambda v, x, y: (loss(v, x, y), {}), variables, batches, optimizer
    )

    ops = {node.op for node in graph.nodes}
    assert {"cross_entropy", "layer_norm", "softmax", "take"} <= ops
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    check_tree(to_pytree(graph, params, variables), tuned)


def test_nnx_module_trains_as_in_jax_and_receives_tuned_weights() -> None:
    module, batches = NnxNet(nnx.Rngs(0)), batches_of((4, 8, 8, 3))
    graph = from_jax(module, (batches[0][0],), loss="cross_entropy")
    found, params = oracle_losses(graph, [{"x": x, "target": y} for x, y in batches])
    tuned = to_pytree(graph, params, module)

    optimizer = nnx.Optimizer(module, optax.sgd(LR), wrt=nnx.Param)

    @nnx.jit
    def step(module: NnxNet, optimizer: Any, x: Any, y: Any) -> Any:
        value, grads = nnx.value_and_grad(lambda m: cross_entropy(m(x), y))(module)
        optimizer.update(module, grads)
        return value

    expected = [float(step(module, optimizer, x, y)) for x, y in batches]

    np.testing.assert_allclose(found, expected, rtol=1e-4)
    check_tree(*(nnx.to_pure_dict(nnx.state(m, nnx.Param)) for m in (tuned, module)))
    check_tree(*(nnx.to_pure_dict(nnx.state(m, nnx.BatchStat)) for m in (tuned, module)))


def test_weights_are_exported_losslessly() -> None:
    module, x = ResNet(), batches_of((4, 8, 8, 3), 1)[0][0]
    variables = variables_of(module, x, False)
    graph = from_jax(module, (variables, x, False))

    back = to_pytree(graph, {name: param.data for name, param in graph.params.items()}, variables)

    assert len(graph.params) == len(jax.tree.leaves(variables))
    jax.tree.map(np.testing.assert_array_equal, back, variables)


def test_norm_with_a_stopped_gradient_is_not_fused() -> None:
    params, x = {"w": np.linspace(-1, 1, 6, dtype=np.float32)}, batches_of((4, 6), 1)[0][0]

    def loss(params: Any, x: Any) -> Any:
        x = x * params["w"]
        mean = jax.lax.stop_gradient(x.mean(-1, keepdims=True))
        var = jax.numpy.square(x - mean).mean(-1, keepdims=True)
        return ((x - mean) / jax.numpy.sqrt(var + 1e-5) * x).sum()

    graph = from_jax(loss, (params, x))
    _, tuned = oracle_losses(graph, [{"x": x}])

    assert "layer_norm" not in {node.op for node in graph.nodes}
    np.testing.assert_allclose(
        tuned["w"], params["w"] - LR * jax.grad(loss)(params, x)["w"], rtol=1e-5
    )
