"""Types that are stored only, in generated code: kept, moved and cast as the oracle does."""

from pathlib import Path

import numpy as np

from pockengine.backends.artifact import write_artifact
from pockengine.backends.registry import backend_for, open_session
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import I64, Builder, DType, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.scalars import converted
from pockengine.devices import load_device


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
