"""optax transformations as optimizers of `compile`: equal steps, or an error with a reason."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import pockengine
from pockengine.compiler.options import Training
from pockengine.errors import CompileError, ImportModelError
from pockengine.frontends.jax.optimizers import to_optimizer
from pockengine.frontends.registry import find_source
from pockengine.tests.compiler.regression import (
    RATE,
    STEPS,
    assert_same,
    data,
    ours,
    rate,
    regression,
)

Maker = Callable[[Any], optax.GradientTransformation]
"""Builds a transformation from a learning rate or a schedule."""

EQUALS: dict[str, Maker] = {
    "sgd": lambda rate: optax.sgd(rate),
    "momentum": lambda rate: optax.sgd(rate, 0.9),
    "nesterov": lambda rate: optax.sgd(rate, 0.9, nesterov=True),
    "adam": lambda rate: optax.adam(rate, eps_root=1e-6),
    "nadamw": lambda rate: optax.nadamw(rate),
    "adamw": lambda rate: optax.adamw(rate, weight_decay=0.1),
    "amsgrad": lambda rate: optax.amsgrad(rate),
    "adamaxw": lambda rate: optax.adamaxw(rate),
    "adadelta": lambda rate: optax.adadelta(rate),
    "adagrad": lambda rate: optax.adagrad(rate),
    "rmsprop": lambda rate: optax.rmsprop(rate, momentum=0.9),
    "rmsprop-outside": lambda rate: optax.rmsprop(rate, eps_in_sqrt=False, initial_scale=1.0),
    "rmsprop-centered": lambda rate: optax.rmsprop(rate, centered=True, eps=1e-3),
    "lion": lambda rate: optax.lion(rate),
    "lamb": lambda rate: optax.lamb(rate, weight_decay=0.1),
    "lars": lambda rate: optax.lars(rate, 0.01),
    "adabelief": lambda rate: optax.adabelief(rate),
    "yogi": lambda rate: optax.yogi(rate),
    "sign": lambda rate: optax.sign_sgd(rate),
    "clip": lambda rate: optax.chain(
        optax.clip(0.1), optax.add_decayed_weights(0.1), optax.sgd(rate)
    ),
    "climb": lambda rate: optax.chain(optax.scale(-1.0), optax.adam(rate)),
    "two traces": lambda rate: optax.chain(
        optax.trace(0.9), optax.trace(0.5, nesterov=True), optax.scale_by_learning_rate(rate)
    ),
}


@pytest.mark.parametrize("name", EQUALS)
def test_steps_equal_optax(name: str) -> None:
    transformation = EQUALS[name](rate)
    params = {name: param.data for name, param in regression().params.items()}
    state = transformation.init(params)
    for step in range(STEPS):
        x, y = data(step).values()
        error = 2 * (x @ params["w"] + params["b"] - y) / y.size
        updates, state = transformation.update({"w": x.T @ error, "b": error.sum(0)}, state, params)
        params = {k: np.asarray(v) for k, v in optax.apply_updates(params, updates).items()}
    assert_same(ours(Training(optimizer=to_optimizer(EQUALS[name](RATE)))), params)


def constant(step: int) -> float:
    return RATE


REFUSED: dict[str, tuple[Any, str]] = {
    "schedule": (optax.adam(constant), r"scale_by_schedule.*fit\(..., lr=lambda n"),
    "clipping": (
        optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(RATE)),
        r"pass clip=pockengine.Clip\(norm",
    ),
    "micro-batches": (optax.MultiSteps(optax.adam(RATE), 2), "MultiSteps.*micro_batches="),
    "hyperparams": (
        optax.inject_hyperparams(optax.adam)(learning_rate=RATE),
        "inject_hyperparams.*an input of each step",
    ),
    "mask": (optax.adamw(RATE, mask={"w": True, "b": False}), "optax.masked.*Groups"),
    "radam": (optax.radam(RATE), r"give pockengine.RAdam\(\)"),
    "noise": (optax.chain(optax.ema(0.9), optax.sgd(RATE)), "optax.ema has.*compile_step"),
    "half": (optax.adam(RATE, mu_dtype="bfloat16"), "mu_dtype=.*bfloat16"),
    "rate": (optax.identity(), "has no learning rate above 0"),
    "a rate below 0": (optax.sgd(-RATE), "has no learning rate above 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_transformations_without_an_equivalent_are_refused(name: str) -> None:
    transformation, words = REFUSED[name]
    with pytest.raises(ImportModelError, match=words):
        to_optimizer(transformation)


def trace_like(share: float) -> optax.GradientTransformation:
    """Return optax's `trace` by name and settings, with steps multiplied by `share`."""
    like, decay, nesterov, accumulator_dtype = optax.trace(0.9), 0.9, False, None

    def update(updates: Any, state: Any, params: Any = None, share: float = share) -> Any:
        assert (nesterov, accumulator_dtype) == (False, None)
        moved = jax.tree.map(lambda u, t: u + decay * t, updates, state.trace)
        return jax.tree.map(lambda step: step * share, moved), optax.TraceState(moved)

    update.__module__, update.__qualname__ = like.update.__module__, like.update.__qualname__
    return optax.GradientTransformation(like.init, update)


def test_a_transformation_that_changed_its_steps_is_refused() -> None:
    """A later version of optax may use the same names for different steps."""
    to_optimizer(optax.chain(trace_like(1.0), optax.scale(-RATE)))
    with pytest.raises(ImportModelError, match="makes other steps than its settings say"):
        to_optimizer(optax.chain(trace_like(1.001), optax.scale(-RATE)))


def predict(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["first"]) @ params["second"]


UPDATES = 12


def test_a_compiled_model_trains_with_an_optax_schedule(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    params = {"first": draw(6, 8), "second": draw(8, 3)}
    inputs = {"x": draw(4, 6), "target": draw(4, 3)}
    x, target = inputs.values()
    transformation = optax.lamb(RATE, weight_decay=0.1)
    compiled = pockengine.compile(
        predict, (params, x), loss="mse", optimizer=transformation, folder=tmp_path / "net"
    )
    schedule = optax.warmup_cosine_decay_schedule(0.0, RATE, 3, UPDATES, end_value=RATE / 10)
    rows = {name: np.concatenate([array] * UPDATES) for name, array in inputs.items()}
    compiled.fit(rows, epochs=1, lr=schedule, shuffle=False)
    tuned = compiled.tuned()
    transformation = optax.lamb(schedule, weight_decay=0.1)
    state, theirs = transformation.init(params), params
    for _ in range(UPDATES):
        grads = jax.grad(lambda p: jnp.mean((predict(p, x) - target) ** 2))(theirs)
        updates, state = transformation.update(grads, state, theirs)
        theirs = optax.apply_updates(theirs, updates)
    for name, array in theirs.items():
        np.testing.assert_allclose(tuned[name], array, rtol=1e-4, atol=1e-5)


def test_models_of_other_frameworks_refuse_optax() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(CompileError, match="is for JAX's models"):
        find_source(torch.nn.Linear(2, 2), (torch.zeros(1, 2),)).optimizer(optax.sgd(RATE))
