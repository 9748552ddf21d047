"""TVM's kernels propagate NaN like the oracle, so that divergence is detected."""

from pathlib import Path

import numpy as np
import pytest

from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.types import f32
from pockengine.tests.backends.tvm.computed import computed

X = np.array([[np.nan, 2.0, -1.0], [0.5, np.nan, np.inf], [-np.inf, 1.0, 7.0]], np.float32)
Y = np.array([[1.0, np.nan, 3.0], [-0.5, np.nan, 2.0], [4.0, 1.0, np.nan]], np.float32)

OPS = {
    "relu": lambda g, x, y: g.relu(x),
    "hardtanh": lambda g, x, y: g.hardtanh(x, min=0.0, max=6.0),
    "hard_sigmoid": lambda g, x, y: g.hard_sigmoid(x),
    "maximum": lambda g, x, y: g.maximum(x, y),
    "minimum": lambda g, x, y: g.minimum(x, y),
    "reduce_max": lambda g, x, y: g.reduce_max(x, axes=(1,)),
    "reduce_min": lambda g, x, y: g.reduce_min(x, axes=(0,)),
    "softmax": lambda g, x, y: g.softmax(x),
}


@pytest.mark.parametrize("op", OPS)
def test_nan_is_kept(op: str, tmp_path: Path) -> None:
    g = Builder(Graph("nan"))
    x, y = (g.input(name, f32(3, 3)) for name in "xy")
    g.output("z", OPS[op](g, x, y))
    inputs = {"x": X, "y": Y}
    with np.errstate(all="ignore"):
        expected = run(g.graph, inputs, {})
    found = computed(g.graph, inputs, tmp_path)
    np.testing.assert_allclose(found["z"], expected["z"], rtol=1e-6)
