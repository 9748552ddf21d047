"""`pockengine.compile` and `compile_step` of JAX functions, as users call them."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from safetensors.numpy import load_file

import pockengine
from pockengine.errors import ImportModelError
from pockengine.tests.frontends.jax.checks import check_tree, random
from pockengine.tests.frontends.jax.nets import NnxNet

LR = 0.1


def predict(params: Any, x: Any) -> Any:
    hidden = jax.nn.relu(x @ params["first"]["kernel"] + params["first"]["bias"])
    return hidden @ params["last"]["kernel"]


def parameters() -> Any:
    return {
        "first": {"kernel": random(6, 8) / 2, "bias": random(8) / 5},
        "last": {"kernel": random(8, 3, seed=1) / 2},
    }


def loss_of(params: Any, x: Any, y: Any) -> Any:
    logits = predict(params, x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def trained(params: Any, x: Any, y: Any, steps: int) -> Any:
    for _ in range(steps):
        grads = jax.grad(loss_of)(params, x, y)
        params = jax.tree.map(lambda p, g: p - LR * g, params, grads)
    return params


def test_function_trains_and_returns_its_pytree(tmp_path: Path) -> None:
    params, x, y = parameters(), random(5, 6), np.arange(5) % 3
    compiled = pockengine.compile(predict, (params, x), loss="cross_entropy")
    with compiled.session(threads=2) as session:
        for _ in range(3):
            session.train_step({"x": x, "target": y}, lr=LR)
        tuned = compiled.tuned(session)
        compiled.save_weights(session, tmp_path / "tuned.safetensors")

    check_tree(tuned, trained(params, x, y, 3), rtol=1e-5)
    saved = load_file(tmp_path / "tuned.safetensors")
    assert sorted(saved) == ["first.bias", "first.kernel", "last.kernel"]
    np.testing.assert_array_equal(saved["last.kernel"], tuned["last"]["kernel"])


def test_user_defined_loss_is_recognized_and_trains() -> None:
    params, x, y = parameters(), random(5, 6), np.array([0, 2, -1, 1, 0], np.int32)
    compiled = pockengine.compile(loss_of, (params, x, y))
    with compiled.session() as session:
        losses = [session.train_step({"x": x, "y": y}, lr=LR)["loss"] for _ in range(3)]
        check_tree(compiled.tuned(session), trained(params, x, y, 3), rtol=1e-5)

    assert "cross_entropy" in {node.op for node in compiled.graph.nodes}
    np.testing.assert_allclose(losses[2], loss_of(trained(params, x, y, 2), x, y), rtol=1e-5)


def test_batches_of_any_size_train_as_in_jax() -> None:
    batch = pockengine.Range(
        "batch", 1, 8, axes={"x": 0, "target": 0}, buckets=(2, 8), pad={"target": -100}
    )
    params = parameters()
    compiled = pockengine.compile(
        predict, (params, random(4, 6)), loss="cross_entropy", sizes=batch
    )
    with compiled.session() as session:
        for size in (1, 5):
            x, y = random(size, 6), np.arange(size) % 3
            session.train_step({"x": x, "target": y}, lr=LR)
            params = trained(params, x, y, 1)
        check_tree(compiled.tuned(session), params, rtol=1e-5)


def test_user_written_step_returns_all_carried_state() -> None:
    optimizer = optax.adam(0.01)
    params, x, y = parameters(), random(5, 6), np.arange(5, dtype=np.int32) % 3

    def step(params: Any, slots: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss_of)(params, x, y)
        updates, slots = optimizer.update(grads, slots)
        return optax.apply_updates(params, updates), slots, value

    slots = optimizer.init(params)
    compiled = pockengine.compile_step(step, (params, slots, x, y), carried=2)
    with compiled.session() as session:
        losses = [session.train_step({"x": x, "y": y}, lr=0.0)["loss"] for _ in range(3)]
        tuned = compiled.tuned(session)
    for number in range(3):
        params, slots, value = step(params, slots, x, y)
        np.testing.assert_allclose(losses[number], value, rtol=1e-5)

    check_tree(tuned[0], params)
    assert int(tuned[1][0].count) == 3


def test_dropout_is_active_only_in_training() -> None:
    x, y = random(4, 8, 8, 3), np.arange(4)
    module = NnxNet(nnx.Rngs(0), dropout=0.5)
    compiled = pockengine.compile(module, (x,), loss="cross_entropy")
    with compiled.session() as session:
        first = session.predict({"x": x})["output"]
        losses = [
            float(session.train_step({"x": x, "target": y}, lr=0.0, seed=seed)["loss"])
            for seed in (1, 2)
        ]
        assert losses[0] != losses[1]
        assert isinstance(compiled.tuned(session), NnxNet)
    module.eval()
    np.testing.assert_allclose(first, module(jnp.asarray(x)), rtol=1e-4, atol=1e-5)


def test_unsupported_models_are_reported() -> None:
    with pytest.raises(ImportModelError, match=r"int is no model .*PyTorch, ONNX, TensorFlow, J"):
        pockengine.compile(3, ())
