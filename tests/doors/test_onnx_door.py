"""The two models through the door of ONNX."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import pockengine
from pockengine.compiler.ir import Graph
from pockengine.tests.doors import spec
from pockengine.tests.doors.measure import check
from pockengine.tests.doors.onnx_door import resnet, transformer, transformer_model


@pytest.mark.parametrize("build", [resnet, transformer])
def test_door_comes_to_the_same_model(build: Callable[[], Graph]) -> None:
    check("onnx", build.__name__, build())


def test_tuned_weights_go_back_into_an_onnx_file(tmp_path: Path) -> None:
    words, y = spec.batches("transformer")[0]
    onnx.save(transformer_model(), tmp_path / "model.onnx")
    compiled = pockengine.compile(tmp_path / "model.onnx", (words,), loss="cross_entropy")
    with compiled.session() as session:
        for _ in range(3):
            session.train_step({"x": words, "target": y}, lr=spec.LR)
        onnx.save(compiled.tuned(session), tmp_path / "tuned.onnx")
        (logits,) = session.predict({"x": words}).values()

    after, before = (
        ReferenceEvaluator(str(tmp_path / name)).run(None, {"x": words})[0]
        for name in ("tuned.onnx", "model.onnx")
    )
    np.testing.assert_allclose(logits, after, rtol=1e-4, atol=1e-5)
    assert np.abs(after - before).max() > 0.1
