"""Compare a backend's trainings with those of C: checks shared by the tests of all runtimes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pockengine
from pockengine.backends.rate_schedule import RateSchedule
from pockengine.backends.session import Session
from pockengine.compiler.optim import Optimizer
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.trainings import TRAININGS
from pockengine.tests.compiler.small_nets import residual_net

STEPS, RATE = 4, 0.01


def check_training(backend: str, name: str, atol: float = 1e-4) -> None:
    """Check that losses, weights, states and the other entries' results equal those of C.

    `atol` is the absolute tolerance of the other entries' results, in addition to 1e-4 relative.
    """
    graph, options = TRAININGS[name]
    ours, c = (pockengine.compile(graph, None, backend=b, **options) for b in (backend, "c"))
    with ours.session() as session, c.session() as other:
        for number in range(STEPS):
            batch = draw(graph, number)
            expected = other.train_step(batch, RATE)["loss"]
            np.testing.assert_allclose(session.train_step(batch, RATE)["loss"], expected, rtol=1e-4)
        batch = draw(graph, STEPS)
        for entry in ours.artifact.entries.keys() - {"train"}:
            inputs = {key: batch[key] for key in ours.artifact.entries[entry].inputs}
            results = session.run(entry, inputs)
            for key, array in other.run(entry, inputs).items():
                np.testing.assert_allclose(results[key], array, rtol=1e-4, atol=atol)
        params = session.params()
        for key, array in other.params().items():
            np.testing.assert_allclose(params.pop(key), array, rtol=1e-4, atol=1e-4, err_msg=key)
        assert not params


def check_moving(backends: Sequence[str], optimizer: Optimizer, folder: Path) -> None:
    """Five steps in each backend, moved by checkpoints, equal as many steps in C."""
    options: dict[str, Any] = {"optimizer": optimizer, "scheme": "last-1-blocks"}
    graph, place, total = residual_net(), folder / "moved", 5 * len(backends)
    rates = RateSchedule("cosine", RATE, total, warmup=3)

    def step(session: Session) -> float:
        inputs, rate = draw(graph, session.steps), rates(session.steps + 1)
        return float(session.train_step(inputs, rate, seed=3)["loss"])

    compiled = {
        backend: pockengine.compile(graph, None, backend=backend, **options)
        for backend in {"c", *backends}
    }
    losses: list[float] = []
    for backend in backends:
        with compiled[backend].session() as session:
            if place.exists():
                session.load(place)
            losses += [step(session) for _ in range(5)]
            session.save(place)
    with compiled["c"].session() as session, compiled[backends[-1]].session() as other:
        np.testing.assert_allclose(losses, [step(session) for _ in range(total)], rtol=1e-5)
        other.load(place)
        assert (other.steps, other.updates, other.seed) == (total, total, 3)
        for name, array in session.params().items():  # including states
            np.testing.assert_allclose(other.get_param(name), array, atol=1e-5, err_msg=name)
