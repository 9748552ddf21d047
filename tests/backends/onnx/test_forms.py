"""Forms: what ONNX Runtime computes for each op is what the oracle says, and no op is forgotten."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pockengine.backends.onnx.backend import OnnxBackend
from pockengine.backends.onnx.bindings import CONSTANTS, model_name
from pockengine.backends.onnx.forms import FORMS
from pockengine.backends.onnx.model import write_models
from pockengine.backends.onnx.runtime import Model
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.passes.legalize import RULES
from pockengine.devices import load_device
from pockengine.tests.compiler.every_op import arrays_of, case_of, graph_of

TARGET = OnnxBackend(load_device("host")).target()
WRITTEN = frozenset({"assign", "take_update"})
"""They give no results; trainings show what they write."""
GONE = frozenset({"unpack_mask"})
MADE = sorted((FORMS.keys() | RULES.keys()) - WRITTEN - GONE)


def computed(graph: Graph, inputs: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """What the runtime makes of a graph without params."""
    program = compile_entries("case", {"case": graph}, target=TARGET)
    write_models(program, folder)
    beside = {CONSTANTS: np.fromfile(folder / CONSTANTS, np.uint8)}
    model = Model("case", (folder / model_name("case")).read_bytes(), beside, 2)
    outputs = {
        name: np.empty(value.shape, value.dtype.numpy)
        for name, value in program.entries["case"].graph.outputs.items()
    }
    model.run(model.bind(inputs, outputs))
    return outputs


@pytest.mark.parametrize("op", [op for op in MADE if not op.endswith("_update")])
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_an_op_is_what_the_oracle_says(op: str, data: st.DataObject, tmp_path: Path) -> None:
    case = case_of(op, data.draw)
    arrays = arrays_of(case, data.draw(st.integers(0, 99)))
    inputs = {f"x{place}": np.asarray(array) for place, array in enumerate(arrays)}
    graph = graph_of(case)
    with np.errstate(all="ignore"):
        wanted = run(graph, inputs, {})
        found = computed(graph, inputs, tmp_path)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-5)
