"""Sizes at the limits of tiles, trees and groups: equal, below, above, and one."""

from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.kernels.rows import IN_PLACE
from pockengine.compiler.compile import compile_entries, compile_program
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.memory.timeline import live_bytes
from pockengine.compiler.ops.attention import GRADIENTS
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.errors import CompileError
from pockengine.tests.backends.gpu.cases import KINDS, floats
from pockengine.tests.backends.gpu.oracle import compare, drawn
from pockengine.tests.compiler.every_op import graph_of
from pockengine.tests.compiler.op_case import OpCase
from pockengine.tests.compiler.transformers import llama_net

BACKEND = GpuBackend(load_device("host"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_size_equals_the_oracle(kind: str, tmp_path: Path) -> None:
    graphs = {f"case{number}": graph_of(case) for number, case in enumerate(KINDS[kind])}
    inputs = {key: drawn(graph) for key, graph in graphs.items()}
    for key, case in zip(graphs, KINDS[kind], strict=True):
        if case.op in GRADIENTS:  # row maxima and sums
            inputs[key]["x4"] = np.abs(inputs[key]["x4"]) + 10
    compare(BACKEND, graphs, inputs, tmp_path)


@pytest.mark.parametrize("op", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_few_rows_and_many_of_one_length_are_two_kernels(op: str, tmp_path: Path) -> None:
    g = Builder(Graph("rows"))
    attrs = {"eps": 1e-5} if "norm" in op else {}
    for rows in (9, 3):
        x = g.input(f"x{rows}", floats(rows, 40))
        g.output(f"y{rows}", g.emit(op, x, **attrs).results[0])
    compare(BACKEND, {"rows": g.graph}, {"rows": drawn(g.graph)}, tmp_path)


@pytest.mark.parametrize("op", ["softmax", "log_softmax", "cross_entropy", "cross_entropy_dx"])
def test_exponentials_are_summed_as_numbers_come(op: str, tmp_path: Path) -> None:
    """Rows that rise to their end, fall, are partly hidden, are equal, or are far from 0."""
    rise = np.linspace(-80, 80, 1000, dtype=np.float32)
    hidden = np.where(np.arange(1000) % 3 == 1, rise, -np.inf).astype(np.float32)
    x = np.stack([rise, rise[::-1], hidden, np.zeros_like(rise), rise + 1000, rise - 1000])
    labels = TensorType(I64, (len(x),)), TensorType(F32, ())
    types = (floats(*x.shape), *labels[: {"cross_entropy": 1, "cross_entropy_dx": 2}.get(op, 0)])
    graph = graph_of(OpCase(op, types, {}))
    inputs = {"x0": x, "x1": np.array([999, 0, 1, 5, 998, 999]), "x2": np.float32(1)}
    operands = {value.name: np.asarray(inputs[value.name]) for value in graph.inputs}
    compare(BACKEND, {"rows": graph}, {"rows": operands}, tmp_path)


@pytest.mark.parametrize("op", ["cross_entropy", "softmax", "reduce_sum", "take"])
def test_more_elements_than_an_int_counts_are_refused(op: str) -> None:
    """Logits of 16,744 tokens over a vocabulary of 128,256."""
    logits, labels = floats(16744, 128256), TensorType(I64, (16744,))
    types = {"cross_entropy": (logits, labels), "take": (logits, TensorType(I64, (3,)))}
    attrs = {"take": {"axis": 0}, "reduce_sum": {"axes": (1,)}}.get(op, {})
    node = graph_of(OpCase(op, types.get(op, (logits,)), attrs)).nodes[0]
    with pytest.raises(CompileError, match=r"2147518464 elements.*make the batch smaller"):
        BACKEND.gpu_kernel(node)


def test_the_gradient_of_logits_lies_on_them() -> None:
    graph = llama_net()
    del graph.outputs["output"]  # returned logits are not overwritten
    program = compile_program(graph, Training(), target=BACKEND.target())
    train = program.entries["train"]
    (gradient,) = (node for node in train.graph.nodes if node.op == "cross_entropy_dx")
    places = train.plan.values
    assert places[gradient.result] == places[gradient.operands[0]]
    assert max(live_bytes(train, program.alignment)) == train.plan.lower_bound


@pytest.mark.parametrize("place", [0, 1])
def test_rows_may_be_written_over_what_they_are_of(place: int, tmp_path: Path) -> None:
    """If the overwritten value has no other user, and in every order."""
    graphs = {}
    for op in (op for op, places in IN_PLACE.items() if place in places):
        attrs = {"eps": 1e-5} if op in ("layer_norm", "rms_norm") else {}
        types = {"cross_entropy_dx": (floats(3, 300), TensorType(I64, (3,)), floats())}
        norm_dx = (floats(3, 300), floats(3, 300), floats(3, 1))
        plain = norm_dx if op.endswith("norm_dx") else (floats(3, 300),)
        g = Builder(Graph(op))
        operands = [g.input(f"x{n}", each) for n, each in enumerate(types.get(op, plain))]
        x = operands[0]
        operands[place] = g.neg(operands[place])
        y = g.emit(op, *operands, **attrs).results[0]
        g.output("y", y if place == 0 else g.sub(y, x))
        graphs[op] = g.graph
    program = compile_entries("cases", dict(graphs), target=BACKEND.target())
    for entry in program.entries.values():
        (node,) = (node for node in entry.graph.nodes if node.op in IN_PLACE)
        assert entry.plan.values[node.results[0]] == entry.plan.values[node.operands[place]]
    inputs = {key: drawn(graph) for key, graph in graphs.items()}
    compare(BACKEND, graphs, inputs, tmp_path)


def test_equal_indices_are_sought_once_for_a_row_of_an_embedding() -> None:
    """Not once per number: 512 tokens of 4,096 numbers compare their indices 512 x 512 times."""
    case = OpCase(
        "take_dx",
        (floats(512, 4096), TensorType(I64, (512,))),
        {"axis": 0, "input_shape": (32000, 4096)},
    )
    order, zeros, sums = BACKEND.gpu_kernel(graph_of(case).nodes[0]).launches
    assert order.groups * order.items == 512
    assert zeros.groups * zeros.items == 32000 * 4096
    assert sums.groups * sums.items == 512 * 4096


def test_groups_share_a_long_sum_whose_result_is_small() -> None:
    """The weight gradient of a first layer: 27 x 16 sums of 36,864 products each, in 64 parts."""
    x, dy = floats(4, 96, 96, 3), floats(4, 96, 96, 16)
    attrs = {"weight_shape": (3, 3, 3, 16), "padding": (1, 1, 1, 1)}
    kernel = BACKEND.gpu_kernel(graph_of(OpCase("conv2d_dw", (x, dy), attrs)).nodes[0])
    products, sums = kernel.launches
    assert products.groups == 64
    assert kernel.scratch_bytes == 4 * 64 * 27 * 16
    assert sums.groups * sums.items >= 27 * 16


def test_what_follows_a_product_is_computed_with_its_sums(tmp_path: Path) -> None:
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
    compare(BACKEND, graphs, {key: drawn(graph) for key, graph in graphs.items()}, tmp_path)
