"""Whole user-written training steps, with jax.grad and optax inside, compiled unchanged."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax.training.train_state import TrainState

from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.verify import verify
from pockengine.devices.schema import load_device
from pockengine.errors import ImportModelError
from pockengine.frontends.jax import from_jax, to_pytree
from pockengine.tests.frontends.jax.checks import batches_of, check_tree, cross_entropy
from pockengine.tests.frontends.jax.nets import Cnn, ResNet, variables_of


def test_step_with_adam_runs_in_generated_code_as_in_jax(tmp_path: Path) -> None:
    module, batches = Cnn(), batches_of((4, 12, 12, 3), 5)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01))

    def step(state: TrainState, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            return cross_entropy(state.apply_fn(params, x), y)

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    params = variables_of(module, batches[0][0])
    state = TrainState.create(apply_fn=module.apply, params=params, tx=optimizer)
    x, y = batches[0][0], batches[0][1].astype(np.int32)
    graph = from_jax(step, (state, x, y), carried=1)
    backend = CBackend(load_device("host"))
    program = compile_entries(graph.name, {"train": graph}, target=backend.target(), check=True)
    losses, expected = [], []
    artifact = write_artifact(program, backend, tmp_path / "artifact")
    with open_session(artifact, threads=2) as session:
        for x, y in batches:
            feed = {"x": x, "y": y.astype(np.int32)}
            losses.append(float(session.run("train", feed)["loss"]))
        tuned = to_pytree(graph, session.params(), state)
    for x, y in batches:
        state, value = jax.jit(step)(state, x, y)
        expected.append(float(value))

    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert int(tuned.step) == 5
    check_tree(tuned.params, state.params, rtol=1e-2)  # Adam divides one rounding error by another


def test_step_with_several_carried_arguments_preserves_their_names() -> None:
    module, (batch,) = ResNet(), batches_of((2, 8, 8, 3), 1)
    variables = variables_of(module, batch[0], True)
    optimizer = optax.sgd(0.1, momentum=0.9)

    def step(variables: Any, slots: Any, batch: Any) -> Any:
        def loss(params: Any) -> Any:
            everything = {**variables, "params": params}
            logits, others = module.apply(everything, batch["x"], True, mutable=["batch_stats"])
            return cross_entropy(logits, batch["y"]), others

        (value, others), grads = jax.value_and_grad(loss, has_aux=True)(variables["params"])
        updates, slots = optimizer.update(grads, slots)
        params = optax.apply_updates(variables["params"], updates)
        return {**others, "params": params}, slots, {"loss": value}

    slots = optimizer.init(variables["params"])
    feed = {"x": batch[0], "y": batch[1].astype(np.int32)}
    graph = from_jax(step, (variables, slots, feed), carried=2)
    verify(graph)
    weights = {name: param.data for name, param in graph.params.items()}
    outputs = run(graph, {"batch.x": feed["x"], "batch.y": feed["y"]}, weights)
    new, _, metrics = jax.jit(step)(variables, slots, feed)

    assert [value.name for value in graph.inputs] == ["batch.x", "batch.y"]
    assert "variables.batch_stats.BatchNorm_0.mean" in graph.params
    assert "slots.0.trace.Dense_0.kernel" in graph.params
    np.testing.assert_allclose(outputs["loss"], metrics["loss"], rtol=1e-5)
    found = {name.removeprefix("variables."): data for name, data in weights.items()}
    tuned = to_pytree(from_jax(module.apply, (variables, feed["x"], False)), found, variables)
    check_tree(tuned, new)


def test_step_must_return_its_carried_state() -> None:
    def step(params: Any, x: Any) -> Any:
        return {"w": params["w"][:1]}, x.sum()

    with pytest.raises(
        ImportModelError, match="result 0 must have the structure, shapes and types"
    ):
        from_jax(step, ({"w": np.ones(3, np.float32)}, np.ones(2, np.float32)), carried=1)
