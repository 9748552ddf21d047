"""Optimizers compared with optax's of the same name."""

import numpy as np
import optax
import pytest

from pockengine.compiler.optim import (
    Adadelta,
    Adam,
    Adamax,
    AdamW,
    Lamb,
    Lars,
    Lion,
    Maximize,
    Optimizer,
    RAdam,
    Sgd,
)
from pockengine.compiler.options import Training
from pockengine.tests.compiler.regression import (
    STEPS,
    assert_same,
    data,
    ours,
    rate,
    regression,
)

EQUALS: dict[str, tuple[Optimizer, optax.GradientTransformation]] = {
    "sgd": (Sgd(0.9, nesterov=True), optax.sgd(rate, 0.9, nesterov=True)),
    "adam": (Adam(), optax.adam(rate)),
    "adamw": (AdamW(weight_decay=1e-4), optax.adamw(rate)),
    "adamax": (Adamax(), optax.adamax(rate)),
    "adadelta": (Adadelta(), optax.adadelta(rate)),
    "lion": (Lion(weight_decay=1e-3), optax.lion(rate)),
    "radam": (RAdam((0.8, 0.9)), optax.radam(rate, 0.8, 0.9)),
    "maximize": (Maximize(Adam()), optax.chain(optax.scale(-1.0), optax.adam(rate))),
    "lars": (Lars(), optax.lars(rate)),
    "lars-all": (
        Lars(0.8, 0.01, 0.02, 1e-3, nesterov=True),
        optax.lars(rate, 0.01, trust_coefficient=0.02, eps=1e-3, momentum=0.8, nesterov=True),
    ),
    "lamb": (Lamb(), optax.lamb(rate)),
    "lamb-decay": (
        Lamb((0.8, 0.9), 1e-3, 0.1),
        optax.lamb(rate, 0.8, 0.9, 1e-3, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("name", EQUALS)
def test_optimizer_equals_optax(name: str) -> None:
    optimizer, transformation = EQUALS[name]
    graph = regression()
    params = {name: param.data for name, param in graph.params.items()}
    state = transformation.init(params)
    for step in range(STEPS):
        x, y = data(step).values()
        error = 2 * (x @ params["w"] + params["b"] - y) / y.size
        grads = {"w": x.T @ error, "b": error.sum(0)}
        updates, state = transformation.update(grads, state, params)
        params = {k: np.asarray(v) for k, v in optax.apply_updates(params, updates).items()}
    assert_same(ours(Training(optimizer=optimizer)), params)
