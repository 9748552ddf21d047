"""A model from an ONNX file: training in generated C compared with our oracle."""

from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Adam
from pockengine.compiler.options import Training
from pockengine.devices.schema import load_device
from pockengine.frontends.onnx.model import from_onnx, to_initializers
from pockengine.tests.frontends.onnx.models import cnn, random

LR = 0.01


def test_cnn_trains_in_c_and_is_written_into_its_file(tmp_path: Path) -> None:
    onnx.save(cnn(), tmp_path / "cnn.onnx")
    x, target = random(4, 3, 8, 8), np.arange(4) % 5
    graph = from_onnx(
        tmp_path / "cnn.onnx", training=True, loss="cross_entropy", shapes={"x": x.shape}
    )
    backend = CBackend(load_device("host"))
    program = compile_program(graph, Training(optimizer=Adam()), target=backend.target())
    step = program.entries["train"].graph
    params = {name: param.data.copy() for name, param in program.params.items()}

    losses, expected = [], []
    artifact = write_artifact(program, backend, tmp_path / "artifact")
    with open_session(artifact, threads=2) as session:
        for number in range(1, 11):
            controls = {
                "lr": np.asarray(LR, np.float32),
                "step": np.asarray(number, np.int32),
                "seed": np.asarray(number, np.int32),
            }
            inputs = {"x": x, "target": target, **controls}
            losses.append(float(session.run("train", inputs)["loss"]))
            expected.append(float(run(step, inputs, params)["loss"]))
        logits = session.predict({"x": x})["logits"]
        tuned = to_initializers(cnn(), graph, session.params())

    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert losses[-1] < losses[0]
    (reference,) = ReferenceEvaluator(tuned).run(None, {"x": x})
    np.testing.assert_allclose(logits, reference, rtol=1e-3, atol=1e-4)
