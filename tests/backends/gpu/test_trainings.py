"""Trainings on the emulated GPU: losses, weights and states equal C's, in every order."""

from typing import Any

import numpy as np
import pytest

import pockengine
from pockengine.backends.session import Session
from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Adagrad, RMSprop, Sgd
from pockengine.compiler.sparse.lora import lora
from pockengine.tests.backends.gpu.cases import STORED
from pockengine.tests.backends.gpu.orders import ORDERS, ordered
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.onnx.nets import pictures
from pockengine.tests.backends.trainings import TRAININGS
from pockengine.tests.compiler.small_nets import residual_net

FIRST, STEPS, RATE = 3, 10, 0.01
MORE: dict[str, tuple[Graph, dict[str, Any]]] = {
    "residual": (residual_net(), {"optimizer": Sgd(momentum=0.9, nesterov=True)}),
    "residual-rmsprop": (residual_net(), {"optimizer": RMSprop(eps=1e-2)}),
    "residual-adagrad": (residual_net(), {"optimizer": Adagrad(eps=1e-2)}),
    "residual-lora": (residual_net(), {"scheme": lora(2, 4, ["a.0.weight", "c.0.weight"])}),
    "resnet20-sparse": (pictures("resnet20-16", 2), {"scheme": "sparse"}),
}
EVERY = {**TRAININGS, **STORED, **MORE}


@pytest.mark.parametrize("name", EVERY)
def test_steps_are_those_of_c_in_every_order(name: str) -> None:
    """Ten steps equal C's; the first three are equal in every order, bit for bit."""
    graph, options = EVERY[name]
    ours, c = (pockengine.compile(graph, None, backend=b, **options) for b in ("gpu", "c"))
    assert "emulated" in ours.artifact.isa
    with c.session() as reference, ours.session() as session:
        first = _trained(session, graph, range(FIRST))
        _expect_close(first, _trained(reference, graph, range(FIRST)))
        steps = range(FIRST, STEPS)
        _expect_close(_trained(session, graph, steps), _trained(reference, graph, steps))
    for order in ORDERS[1:]:
        with ordered(ours.artifact, order), ours.session() as session:
            for key, array in _trained(session, graph, range(FIRST)).items():
                assert array.tobytes() == first[key].tobytes(), key


def _expect_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for key, array in expected.items():
        if array.dtype.kind != "f":  # codes, which nothing writes; NumPy has no bf16 arithmetic
            assert found[key].tobytes() == array.tobytes(), key
            continue
        most = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-4 * most, err_msg=key)


def _trained(session: Session, graph: Graph, steps: range) -> dict[str, np.ndarray]:
    """Train, and return the losses, the params and the other entries' results."""
    losses = [session.train_step(draw(graph, n), RATE)["loss"] for n in steps]
    results = {"losses": np.array(losses)}
    batch = draw(graph, STEPS)
    for entry, spec in session.artifact.entries.items():
        if entry != "train":
            outputs = session.run(entry, {key: batch[key] for key in spec.inputs})
            results |= {f"{entry}/{key}": array for key, array in outputs.items()}
    return results | session.params()
