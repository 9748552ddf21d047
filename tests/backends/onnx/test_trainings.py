"""Trainings in ONNX Runtime: losses, weights and states are those of C, whatever trains."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pockengine
from pockengine.backends.rate_schedule import RateSchedule
from pockengine.backends.session import Course
from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Adam, AdamW, Sgd
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.scheme import FULL, ParamChoice
from pockengine.errors import RuntimeFailure
from pockengine.tests.backends.inputs import draw
from pockengine.tests.compiler.small_nets import residual_net
from pockengine.tests.compiler.transformers import bert_net, llama_net
from pockengine.tests.replay.nets import mobile_net
from pockengine.tests.replay.nets import residual_net as resnet

SPARSE = Scheme(
    "channels",
    (
        ("*.bias", FULL),
        ("features.4.conv.0.0.weight", ParamChoice("share", share=0.25)),
        ("features.5.conv.0.0.weight", ParamChoice("channels", channels=(1, 4, 5))),
        ("features.5.conv.1.0.weight", ParamChoice("range", channels=(8, 24))),
    ),
)


def opened(graph: Graph) -> Graph:
    """Start batch norms in the middle of ReLU6, so that rounding is not amplified."""
    for name, param in graph.params.items():
        if name.endswith(".bias") and name.replace(".bias", ".running_var") in graph.params:
            param.data = np.full_like(param.data, 2.0)
    return graph


SMOOTH = {"eps": 1e-2}
"""Adam that makes no large steps of gradients that are rounding."""

TRAININGS: dict[str, tuple[Graph, dict[str, Any]]] = {
    "mobile": (opened(mobile_net(2, 16)), {"optimizer": Sgd(momentum=0.9, weight_decay=1e-3)}),
    "mobile-sparse": (opened(mobile_net(2, 16)), {"scheme": SPARSE}),
    "resnet-biases": (resnet(2, 16), {"scheme": "bias-only", "optimizer": Adam(**SMOOTH)}),
    "bert-lora": (bert_net(), {"scheme": "lora-4", "optimizer": AdamW(**SMOOTH)}),
    "llama": (llama_net(), {"optimizer": Adam(**SMOOTH)}),
}
STEPS, RATE = 4, 0.01


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_is_that_of_c(name: str) -> None:
    graph, options = TRAININGS[name]
    ours, c = (
        pockengine.compile(graph, None, backend=backend, **options) for backend in ("onnx", "c")
    )
    with ours.session() as session, c.session() as other:
        for number in range(STEPS):
            batch = draw(graph, number)
            loss = float(other.train_step(batch, RATE)["loss"])
            assert float(session.train_step(batch, RATE)["loss"]) == pytest.approx(loss, rel=1e-4)
        batch = draw(graph, STEPS)
        for entry in ours.artifact.entries.keys() - {"train"}:
            inputs = {name: batch[name] for name in ours.artifact.entries[entry].inputs}
            for key, array in other.run(entry, inputs).items():
                found = session.run(entry, inputs)[key]
                np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-4)
        wanted = other.params()
        assert session.params().keys() == wanted.keys()
        for key, array in session.params().items():
            np.testing.assert_allclose(array, wanted[key], rtol=1e-4, atol=1e-4, err_msg=key)


def test_a_training_moves_between_backends(tmp_path: Path) -> None:
    """Five steps in C, five in ONNX Runtime, five in C: as fifteen in C."""
    options: dict[str, Any] = {"optimizer": Sgd(momentum=0.9), "scheme": "last-1-blocks"}
    graph = residual_net()
    compiled = {
        backend: pockengine.compile(graph, None, backend=backend, **options)
        for backend in ("c", "onnx")
    }

    def train(backend: str, start: Path | None, steps: int) -> tuple[Path, list[float]]:
        with compiled[backend].session() as session:
            if start is not None:
                session.load(start)
            first, losses = session.steps, []
            for number in range(first, first + steps):
                losses.append(float(session.train_step(draw(graph, number), RATE, seed=3)["loss"]))
            end = tmp_path / f"{backend}-{session.steps}-{steps}"
            session.save(end)
            return end, losses

    end, wanted = train("c", None, 15)
    moved, losses = None, []
    for backend in ("c", "onnx", "c"):
        moved, part = train(backend, moved, 5)
        losses += part
    assert moved is not None
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    with compiled["c"].session() as session, compiled["onnx"].session() as other:
        session.load(end)
        other.load(moved)
        assert (other.steps, other.updates, other.seed) == (15, 15, 3)
        for name, array in session.params().items():
            np.testing.assert_allclose(other.get_param(name), array, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "schedule",
    [
        RateSchedule("constant", 0.1, 50),
        RateSchedule("cosine", 0.3, 100, warmup=7),
        RateSchedule("multistep", 0.1, 90, factor=0.3, milestones=(20, 50)),
    ],
)
def test_the_course_of_a_training_moves_with_it(schedule: RateSchedule, tmp_path: Path) -> None:
    """What C has read and written again is what a session in Python wrote."""
    course = Course(schedule, 640, True, 32, True, 4)
    compiled = [pockengine.compile(residual_net(), None, backend=name) for name in ("onnx", "c")]
    with compiled[0].session() as ours, compiled[1].session() as c:
        ours.steps, ours.updates, ours.seed, ours.course = 12, 12, 7, course
        ours.save(tmp_path / "ours")
        c.load(tmp_path / "ours")
        assert (c.steps, c.updates, c.seed, c.course) == (12, 12, 7, course)
        c.save(tmp_path / "c")
        ours.course = None
        ours.load(tmp_path / "c")
        assert ours.course == course


def test_a_checkpoint_of_other_weights_is_refused(tmp_path: Path) -> None:
    """What a checkpoint leaves out must be the weights that it was trained on."""
    first, second = (
        pockengine.compile(_renewed(factor), None, backend="onnx", scheme="head-only")
        for factor in (1.0, 2.0)
    )
    with first.session() as session:
        session.train_step(draw(first.graph, 0), RATE)
        session.save(tmp_path / "saved")
    with second.session() as session, pytest.raises(RuntimeFailure, match="other frozen weights"):
        session.load(tmp_path / "saved")


def _renewed(factor: float) -> Graph:
    graph = residual_net()
    graph.params["a.0.weight"].data = graph.params["a.0.weight"].data * np.float32(factor)
    return graph
