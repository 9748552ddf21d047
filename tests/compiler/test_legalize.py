"""Legalization: rules compute their op's results; a target with few ops trains like a full one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.ops import all_ops
from pockengine.compiler.optim import Adam, Lion, Optimizer, Sgd
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.compiler.options import Training
from pockengine.compiler.passes.legal.legalize import RULES, Legalize
from pockengine.compiler.program import Program
from pockengine.compiler.sparse import ParamChoice, Scheme
from pockengine.compiler.target import OPTIONAL, Target
from pockengine.errors import CompileError
from pockengine.tests.compiler.every_op import arrays_of, case_of, graph_of
from pockengine.tests.compiler.small_nets import attention_net, batches, residual_net

FEW_NAMES = """
    abs add atan ceil cos div exp floor log maximum minimum mul sign sin sqrt sub tanh
    where cast eq ge gt le lt ne logical_and logical_not logical_or
    broadcast_to concat pad reshape slice transpose
    reduce_max reduce_sum matmul conv2d random_uniform assign decode_blocks
"""
FEW = frozenset(FEW_NAMES.split())
"""A target with few ops; all others must be legalized to these."""
TARGET = Target(name="few", ops=FEW, passes=OPTIONAL - {"fuse", "absorb_updates"})

UPDATES = frozenset(FORMULAS) | {"take_update"}


@pytest.mark.parametrize("op", sorted(RULES.keys() - UPDATES - {"unpack_mask"}))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_rules_compute_the_results_of_their_op(op: str, data: st.DataObject) -> None:
    case = case_of(op, data.draw)
    arrays = arrays_of(case, data.draw(st.integers(0, 99)))
    inputs = {f"x{place}": array for place, array in enumerate(arrays)}
    graph = graph_of(case)
    with np.errstate(all="ignore"):
        expected = run(graph, inputs, {})
        Legalize(TARGET).run(graph)
        verify(graph)
        found = run(graph, inputs, {})
    assert {node.op for node in graph.nodes} <= FEW
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-5)


def test_bits_of_a_float_are_exact() -> None:
    """Except the bits of a NaN, which no other op can observe."""
    drawn = np.random.default_rng(0).integers(2**32, size=2000)
    forms = [0, 1, 0x7FFFFF, 0x800000, 0x7F800000, 0x7F7FFFFF, 0x3F800000, 0x7FC00000]
    numbers = np.array([*forms, *(form | 1 << 31 for form in forms[:-1]), *drawn], np.uint32)
    x = numbers.view(np.float32)
    g = Builder(Graph("bits"))
    g.output("y", g.float_bits(g.input("x", TensorType(F32, x.shape))))
    Legalize(TARGET).run(g.graph)
    with np.errstate(all="ignore"):
        found = run(g.graph, {"x": x}, {})["y"]
    np.testing.assert_array_equal(found[~np.isnan(x)], numbers.view(np.int32)[~np.isnan(x)])
    assert set(found[np.isnan(x)]) == {0x7FC00000}


def _trained(program: Program, steps: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    params = {name: param.data.copy() for name, param in program.params.items()}
    for index, batch in enumerate(steps):
        inputs = {**batch, "step": np.int32(index + 1), "lr": np.float32(0.05)}
        params["loss"] = run(program.entries["train"].graph, inputs, params)["loss"]
    return params


@pytest.mark.parametrize("optimizer", [Sgd(momentum=0.9, weight_decay=0.1), Adam(), Lion()])
def test_target_with_few_ops_trains_the_same(optimizer: Optimizer) -> None:
    rules = (("b.0.weight", ParamChoice("channels", channels=(0, 2))), ("*", ParamChoice("full")))
    scheme = Scheme("all", rules) if isinstance(optimizer, Sgd) else "full"
    training = Training(scheme, optimizer)
    shape = {"batch": 4, "size": 12}
    ends = []
    for target in (Target(), TARGET):
        program = compile_program(residual_net(**shape), training, target=target, check=True)
        ends.append(_trained(program, batches(3, **shape)))
    ops = {node.op for entry in program.entries.values() for node in entry.graph.nodes}
    assert ops <= FEW
    for name, array in ends[0].items():
        np.testing.assert_allclose(ends[1][name], array, rtol=2e-3, atol=2e-5, err_msg=name)


def test_embedding_and_attention_train_the_same() -> None:
    ends = []
    for target in (Target(), TARGET):
        program = compile_program(attention_net(32), Training(), target=target, check=True)
        rng = np.random.default_rng(0)
        x = rng.standard_normal((32, 16)).astype(np.float32)
        ends.append(_trained(program, [{"x": x, "target": np.asarray([1])}] * 2))
    for name, array in ends[0].items():
        np.testing.assert_allclose(ends[1][name], array, rtol=1e-3, atol=1e-5, err_msg=name)


def test_table_updated_by_rows_trains_the_same() -> None:
    g = Builder(Graph("table"))
    index = g.input("index", TensorType(I64, (5,)))
    table = g.param("table", np.arange(24, dtype=np.float32).reshape(8, 3) / 10)
    g.output("loss", g.reduce_mean(g.square(g.take(table, index, axis=0)), axes=(0, 1)))
    ends = []
    for target in (Target(), TARGET):
        program = compile_program(g.graph, Training(), target=target, check=True)
        ends.append(_trained(program, [{"index": np.asarray([1, 7, 1, 0, 3])}] * 2))
    for name, array in ends[0].items():
        np.testing.assert_allclose(ends[1][name], array, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("again", [False, True])
def test_recomputed_nodes_are_not_duplicates(again: bool) -> None:
    graph = Graph("twice")
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (4,)))
    first, second = g.exp(x), g.exp(x)
    graph.outputs["y"] = g.add(g.relu(first), g.relu(g.mul(second, x)))
    if again:
        assert second.node is not None
        second.node.recomputes = first.node
    Legalize(TARGET).run(graph)
    assert [node.op for node in graph.nodes].count("exp") == 1 + again


def test_error_names_an_op_without_a_rule() -> None:
    g = Builder(Graph("case"))
    g.output("y", g.cumsum(g.input("x", TensorType(F32, (3,))), axis=0))
    with pytest.raises(CompileError, match="target few has no cumsum, and nothing legalizes it"):
        Legalize(TARGET).run(g.graph)


def test_error_names_an_unsupported_dtype() -> None:
    g = Builder(Graph("case"))
    g.output("y", g.neg(g.input("x", TensorType(I64, (3,)))))
    with pytest.raises(CompileError, match=r"has no i64 .*; it has f32"):
        Legalize(Target(name="few", dtypes=frozenset({F32}))).run(g.graph)


def test_every_rule_is_for_a_known_op() -> None:
    assert set(RULES) <= {op.name for op in all_ops()}
