"""Whole trainings through `compile` agree with the oracle at every step, for every backend."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pockengine
from pockengine.backends.session import Session
from pockengine.compiled import Compiled
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Adafactor, Adam, Sgd
from pockengine.compiler.sparse.lora import lora
from pockengine.devices import Device
from pockengine.errors import RuntimeFailure
from pockengine.tests.backends.c.programs import convolutional_graph
from pockengine.tests.backends.every import WITH_RUNTIMES
from pockengine.tests.backends.inputs import draw
from pockengine.tests.compiler.small_nets import attention_net, residual_net
from pockengine.tests.compiler.transformers import bert_net

RATE = 0.05
Arrays = dict[str, np.ndarray]

SMOOTH = Adam(eps=1e-2)
"""Adam with small steps for gradients that are only rounding."""

TRAININGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "cnn": (convolutional_graph, {"optimizer": Sgd(momentum=0.9, weight_decay=1e-3)}),
    "cnn-head": (convolutional_graph, {"scheme": "head-only"}),
    "residual-adafactor": (residual_net, {"optimizer": Adafactor()}),
    "residual-micro-batches": (residual_net, {"optimizer": Adam(), "micro_batches": 3}),
    "attention-budget": (attention_net, {"optimizer": Sgd(), "memory_budget": 1_500_000}),
    "transformer": (bert_net, {"optimizer": SMOOTH}),
    "transformer-lora": (
        bert_net,
        {"optimizer": SMOOTH, "scheme": lora(2, 4, ["*.query.weight"])},
    ),
}


def step(compiled: Compiled, entry: str, inputs: Mapping[str, Any], state: Arrays) -> Arrays:
    """Run an entry in the oracle, on the lowered graph."""
    return run(compiled.program.entries[entry].graph, inputs, state)


@WITH_RUNTIMES
@pytest.mark.parametrize("name", TRAININGS)
def test_training_is_the_oracles(name: str, device: Device | Path | str) -> None:
    make, options = TRAININGS[name]
    compiled = pockengine.compile(make(), None, device=device, **options)
    micro_batches = compiled.program.micro_batches
    state = {name: param.data.copy() for name, param in compiled.program.params.items()}
    rate = np.asarray(RATE, np.float32)
    with compiled.session() as session:
        for number in range(1, 2 * micro_batches + 1):
            inputs = draw(compiled.graph, number)
            update = np.asarray(-(-number // micro_batches), np.int32)
            controls = {"lr": rate, "step": update}
            expected = step(compiled, "train", {**inputs, **controls}, state)["loss"]
            assert float(session.train_step(inputs, RATE)["loss"]) == pytest.approx(
                float(expected), rel=2e-5
            )
            if micro_batches > 1 and number % micro_batches == 0:
                step(compiled, "update", controls, state)
        for key, array in session.params().items():
            np.testing.assert_allclose(array, state[key], rtol=1e-4, atol=1e-5, err_msg=key)


@WITH_RUNTIMES
def test_a_training_goes_on_from_its_checkpoint(
    tmp_path: Path, device: Device | Path | str
) -> None:
    compiled = pockengine.compile(
        residual_net(), None, optimizer=Adam(), micro_batches=2, device=device
    )

    def train(session: Session, until: int) -> list[float]:
        losses = []
        while session.steps < until:
            inputs = draw(compiled.graph, session.steps)
            losses.append(float(session.train_step(inputs, RATE)["loss"]))
        return losses

    with compiled.session() as session:
        losses, final = train(session, 6), session.params()
    with compiled.session() as session:
        assert train(session, 3) == losses[:3]
        session.save(tmp_path / "saved")
    with compiled.session() as session:
        session.load(tmp_path / "saved")
        assert (session.steps, session.updates) == (3, 1)
        assert train(session, 6) == losses[3:]
        for name, array in session.params().items():
            np.testing.assert_array_equal(array, final[name], err_msg=name)
    merged = compiled.tuned(tmp_path / "saved")
    assert merged.keys() >= {"fc.weight", "fc.bias"}


@WITH_RUNTIMES
def test_wrong_inputs_are_named(device: Device | Path | str) -> None:
    with pockengine.compile(residual_net(), None, device=device).session() as session:
        inputs = draw(residual_net(), 0)
        for wrong, words in (
            ({"x": inputs["x"]}, "input target .* is missing"),
            ({**inputs, "x": inputs["x"][:1]}, "x must be"),
            ({**inputs, "y": inputs["x"]}, "has no input"),
        ):
            with pytest.raises(RuntimeFailure, match=words):
                session.train_step(wrong, RATE)
        assert session.steps == 0
