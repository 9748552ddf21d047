"""Kernels: each op's result in the emulation equals the oracle's, in every order."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pockengine.backends.artifact import write_artifact
from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.kernels import FAMILIES
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.legal.legalize import RULES
from pockengine.devices import load_device
from pockengine.tests.backends.gpu.orders import ORDERS, ordered
from pockengine.tests.compiler.every_op import arrays_of, case_of, graph_of

BACKEND = GpuBackend(load_device("host"))
UNDRAWN = frozenset({"concat", "unpack_mask"})
"""Ops without random operands, or in no graph here; they are covered by trainings."""
MADE = sorted(op for op in (FAMILIES.keys() | RULES.keys()) - UNDRAWN if not lookup(op).writes)
AT_ONCE = 12
CHUNKS = [MADE[start : start + AT_ONCE] for start in range(0, len(MADE), AT_ONCE)]


@pytest.mark.parametrize("ops", CHUNKS, ids=lambda ops: ops[0])
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_ops_equal_the_oracle(
    ops: list[str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graphs, inputs = {}, {}
    for op in ops:
        case = case_of(op, data.draw)
        arrays = arrays_of(case, data.draw(st.integers(0, 99)))
        graphs[op] = graph_of(case)
        inputs[op] = {f"x{place}": np.asarray(array) for place, array in enumerate(arrays)}
    program = compile_entries("cases", graphs, target=BACKEND.target())
    artifact = write_artifact(program, BACKEND, tmp_path_factory.mktemp("cases") / "made")
    with open_session(artifact) as session, np.errstate(all="ignore"):
        for op, graph in graphs.items():
            found = []
            for order in ORDERS:
                with ordered(artifact, order):
                    found.append(session.run(op, inputs[op]))
            for name, array in run(graph, inputs[op], {}).items():
                text = f"{op} of {inputs[op]}"
                np.testing.assert_allclose(
                    found[0][name], array, rtol=2e-4, atol=2e-5, err_msg=text
                )
                for other in found[1:]:
                    np.testing.assert_array_equal(found[0][name], other[name], err_msg=text)
