"""Compare the step on the HTP's simulator with the oracle, if onnxruntime-qnn is installed.

The HTP's floats have 16 bits, so losses agree within 2 %; trained integers differ by at most one.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import pytest

from pockengine.backends.onnx.qnn.provider import NAME
from pockengine.backends.onnx.runtime import Placed
from pockengine.backends.onnx.session import OnnxSession
from pockengine.backends.registry import open_session
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.program import Program
from pockengine.tests.backends.onnx.qnn.nets import SAMPLES, compiled

# Each test skips, not the file: a target without a test fails.
pytestmark = pytest.mark.skipif(
    find_spec("onnxruntime_qnn") is None,
    reason="onnxruntime-qnn is not installed: pip install onnxruntime-qnn",
)

RATE = 0.01


class Step(NamedTuple):
    program: Program
    session: OnnxSession
    placed: list[Placed]


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Step]:
    program, artifact = compiled(tmp_path_factory.mktemp("qnn") / "artifact")
    with open_session(artifact) as session:
        assert isinstance(session, OnnxSession)
        yield Step(program, session, session.placed("train"))


def test_all_but_the_scatter_of_labels_is_on_the_htp(step: Step) -> None:
    assert [each.op for each in step.placed if each.provider != NAME] == ["ScatterElements"]
    assert sum(each.op == "Conv" for each in step.placed) == 3


def test_steps_are_the_oracles(step: Step) -> None:
    graph = step.program.entries["train"].graph
    params = {name: param.data.copy() for name, param in graph.params.items()}
    first = {name: data.copy() for name, data in params.items()}
    for number, batch in enumerate(SAMPLES):
        inputs = {key: batch[key] for key in ("x", "target")}
        found = step.session.train_step(inputs, lr=RATE)["loss"]
        feed = {**batch, "lr": np.asarray(RATE, np.float32), "step": np.int32(number + 1)}
        np.testing.assert_allclose(found, run(graph, feed, params)["loss"], rtol=2e-2)
    trained = step.session.params()
    for name in ("c.0.weight", "fc.weight"):
        moved = np.abs(params[name].astype(int) - first[name])
        assert moved.max() > 5
        assert np.abs(trained[name].astype(int) - params[name]).max() <= 1, name


def test_predictions_are_the_oracles(step: Step) -> None:
    graph = step.program.entries["predict"].graph
    inputs = {"x": SAMPLES[0]["x"]}
    found = step.session.predict(inputs)["output"]
    expected = run(graph, inputs, step.session.params())["output"]
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())
