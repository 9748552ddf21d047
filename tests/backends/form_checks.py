"""Compare a runtime's result of each op with the oracle's."""

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.passes.legal.legalize import RULES
from pockengine.tests.compiler.every_op import arrays_of, case_of, graph_of

Computed = Callable[[Graph, dict[str, np.ndarray], Path], dict[str, np.ndarray]]
"""Compiles a graph without params in a folder, and runs it in the runtime."""

WRITTEN = frozenset({"assign", "take_update"})
"""Ops without results: their effects are covered by trainings, as are optimizers' updates."""
GONE = frozenset({"unpack_mask"})


def made(forms: Collection[str], elsewhere: Collection[str] = ()) -> list[str]:
    """Return the ops that have a form or a rule, except those covered by other tests."""
    ops = {*forms, *RULES} - WRITTEN - GONE - set(elsewhere)
    return sorted(op for op in ops if not op.endswith("_update"))


def check_op(op: str, data: st.DataObject, computed: Computed, folder: Path) -> None:
    """Draw a case of an op; the result must equal the oracle's."""
    case = case_of(op, data.draw)
    arrays = arrays_of(case, data.draw(st.integers(0, 99)))
    inputs = {f"x{place}": np.asarray(array) for place, array in enumerate(arrays)}
    graph = graph_of(case)
    with np.errstate(all="ignore"):
        expected = run(graph, inputs, {})
        found = computed(graph, inputs, folder)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-5)
