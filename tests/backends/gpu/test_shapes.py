"""Sizes at the borders of tiles, trees and groups: equal, below, above, and one."""

from typing import Any

import numpy as np
import pytest

from pockengine.backends.artifact import write_artifact
from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.kernels.product import BUSY
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import F32, I64, Builder, Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ops.attention import GRADIENTS
from pockengine.devices import load_device
from pockengine.tests.backends.gpu.cases import KINDS, floats
from pockengine.tests.backends.gpu.orders import ORDERS, ordered
from pockengine.tests.compiler.every_op import graph_of
from pockengine.tests.compiler.op_case import OpCase

BACKEND = GpuBackend(load_device("host"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_size_is_what_the_oracle_says(kind: str, tmp_path_factory: Any) -> None:
    graphs = {f"case{number}": graph_of(case) for number, case in enumerate(KINDS[kind])}
    inputs = {key: _drawn(graph) for key, graph in graphs.items()}
    for key, case in zip(graphs, KINDS[kind], strict=True):
        if case.op in GRADIENTS:  # greatest scores and sums
            inputs[key]["x4"] = np.abs(inputs[key]["x4"]) + 10
    _compare(graphs, inputs, tmp_path_factory)


@pytest.mark.parametrize("op", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_few_rows_and_many_of_one_length_are_two_kernels(op: str, tmp_path_factory: Any) -> None:
    g = Builder(Graph("rows"))
    attrs = {"eps": 1e-5} if "norm" in op else {}
    for rows in (9, 3):
        x = g.input(f"x{rows}", floats(rows, 40))
        g.output(f"y{rows}", g.emit(op, x, **attrs).results[0])
    _compare({"rows": g.graph}, {"rows": _drawn(g.graph)}, tmp_path_factory)


def test_groups_share_a_long_sum_whose_result_is_small() -> None:
    """The weight's gradient of a first layer: 27 x 16 sums of 36,864 products each."""
    x, dy = floats(4, 96, 96, 3), floats(4, 96, 96, 16)
    attrs = {"weight_shape": (3, 3, 3, 16), "padding": (1, 1, 1, 1)}
    kernel = BACKEND.gpu_kernel(graph_of(OpCase("conv2d_dw", (x, dy), attrs)).nodes[0])
    products, sums = kernel.launches
    assert products.groups == BUSY
    assert kernel.scratch_bytes == 4 * BUSY * 27 * 16
    assert sums.groups * sums.items >= 27 * 16


def test_what_follows_a_product_is_computed_with_its_sums(tmp_path_factory: Any) -> None:
    graphs = {}
    for op in ("matmul", "conv2d", "depthwise"):
        g = Builder(Graph(op))
        shape = (33, 40) if op == "matmul" else (2, 5, 6, 40)
        x, bias, scale = (
            g.input(n, floats(*s)) for n, s in (("x", shape), ("b", (40,)), ("s", ()))
        )
        if op == "matmul":
            y = g.matmul(x, g.input("w", floats(40, 40)))
        else:
            groups = 1 if op == "conv2d" else 40
            y = g.conv2d(x, g.input("w", floats(1, 1, 40 // groups, 40)), groups=groups)
        g.output("y", g.add(g.relu(g.mul(g.add(y, bias), scale)), x))
        graphs[op] = g.graph
    _compare(graphs, {key: _drawn(graph) for key, graph in graphs.items()}, tmp_path_factory)


def _drawn(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        value.name: rng.standard_normal(value.shape).astype(np.float32)
        if value.dtype is F32
        else rng.integers(0, 300 if value.dtype is I64 else 2, value.shape, value.dtype.numpy)
        for value in graph.inputs
    }


def _compare(
    graphs: dict[str, Graph], inputs: dict[str, dict[str, np.ndarray]], folders: Any
) -> None:
    program = compile_entries("cases", graphs, target=BACKEND.target())
    artifact = write_artifact(program, BACKEND, folders.mktemp("cases") / "made")
    with open_session(artifact) as session:
        for key, graph in graphs.items():
            found = []
            for order in ORDERS:
                with ordered(artifact, order):
                    found.append(session.run(key, inputs[key]))
            for name, array in run(graph, inputs[key], {}).items():
                text = str(graph.nodes[0])
                np.testing.assert_allclose(
                    found[0][name], array, rtol=1e-4, atol=1e-4, err_msg=text
                )
                for other in found[1:]:
                    np.testing.assert_array_equal(found[0][name], other[name], err_msg=text)
