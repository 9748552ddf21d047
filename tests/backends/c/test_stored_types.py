"""Storage-only types in generated code: stored, moved and cast as in the oracle."""

from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.artifact import write_artifact
from pockengine.backends.registry import backend_for, open_session
from pockengine.compiler.compile import compile_entries, compile_program
from pockengine.compiler.ir import I64, Builder, DType, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.scalars import converted
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.storage import Storage
from pockengine.devices import load_device
from pockengine.tests.compiler.transformers import bert_net


def test_every_type_is_kept_in_a_table_by_generated_code(tmp_path: Path) -> None:
    g = Builder(Graph("tables"))
    rows = g.input("rows", TensorType(I64, (4,)))
    numbers = np.array([[0, 1, 0, 1], [1, 1, 0, 2], [5, 0, 1, 1]], np.float32)
    for dtype in DType:
        table = g.param(dtype.value, converted(numbers, dtype), trainable=False)
        g.output(f"{dtype.value}_rows", g.cast(g.take(table, rows, axis=0), dtype="f32"))
    rows_data = np.array([2, 0, 1, 1])
    expected = run(g.graph, {"rows": rows_data})
    device = load_device("host")
    backend = backend_for(device)
    program = compile_entries("tables", {"predict": g.graph}, target=backend.target())
    artifact = write_artifact(program, backend, tmp_path / "tables")
    with open_session(artifact) as session:
        found = session.predict({"rows": rows_data})
        session.save(tmp_path / "whole.safetensors", whole=True)
        session.load(tmp_path / "whole.safetensors")
        again = session.predict({"rows": rows_data})
    for name, numbers_there in expected.items():
        assert found[name].tolist() == again[name].tolist() == numbers_there.tolist(), name


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_training_on_rounded_activations_is_the_oracles(dtype: str, tmp_path: Path) -> None:
    graph = bert_net(2, 32)
    backend = backend_for(load_device("host"))
    training = Training("full", Sgd(), storage=Storage(activations=dtype))
    program = compile_program(graph, training, target=backend.target())
    train = program.entries["train"].graph
    casts = [node for node in train.nodes if node.op == "cast" or "body" in node.attrs]
    assert any(value.dtype.value == dtype for node in casts for value in node.results)
    rng = np.random.default_rng(0)
    batch = {
        value.name: rng.integers(0, 4, value.shape)
        if value.dtype is I64
        else rng.standard_normal(value.shape).astype(np.float32)
        for value in graph.inputs
    }
    values = {name: param.data.copy() for name, param in program.params.items()}
    artifact = write_artifact(program, backend, tmp_path / "net")
    with open_session(artifact, threads=2) as session:
        for step in range(3):
            expected = run(train, {**batch, "lr": np.float32(0.05)}, values)["loss"]
            loss = session.train_step(batch, 0.05)["loss"]
            # Afterwards a number between two 16-bit numbers may be rounded to the other one.
            np.testing.assert_allclose(loss, expected, rtol=1e-3 if step else 1e-5)
