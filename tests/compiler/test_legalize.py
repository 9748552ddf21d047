"""Legalisation: each rule gives what the op gives, and a target of few ops trains as a full one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.compiler.compile import Training, compile_program
from pockengine.compiler.ir import F32, I32, I64, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.ops import all_ops, lookup
from pockengine.compiler.ops.conv import window_output
from pockengine.compiler.optim import Adam, Lion, Optimizer, Sgd
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.compiler.passes.legalize import RULES, legalize
from pockengine.compiler.program import Program
from pockengine.compiler.sparse import ParamChoice, Scheme
from pockengine.compiler.target import OPTIONAL, Target
from pockengine.errors import CompileError
from pockengine.tests.compiler.op_cases import OpCase, draw_case
from pockengine.tests.compiler.small_nets import attention_net, batches, residual_net

FEW_NAMES = """
    abs add cos div erf exp expm1 log maximum minimum mul sign sin sqrt sub tanh where cast
    eq ge gt le lt ne logical_and logical_not logical_or
    broadcast_to concat pad reshape slice transpose
    reduce_max reduce_sum matmul conv2d random_uniform assign
"""
FEW = frozenset(FEW_NAMES.split())
"""A target of few ops; all others must be made of these."""
TARGET = Target(name="few", ops=FEW, passes=OPTIONAL - {"fuse", "absorb_updates"})

UPDATES = frozenset(FORMULAS) | {"take_update"}
Draw = Callable[[Any], Any]


def _conv_dw(draw: Draw) -> OpCase:
    case = draw(draw_case("conv2d"))
    x, w = case.types
    size = window_output(x.shape[1:3], w.shape[:2], case.attrs)
    dy = TensorType(F32, (x.shape[0], *size, w.shape[3]))
    return OpCase("conv2d_dw", (x, dy), {**case.attrs, "weight_shape": w.shape})


def _gradient_of_pool(op: str) -> Callable[[Draw], OpCase]:
    def case(draw: Draw) -> OpCase:
        forward = draw(draw_case(op))
        (x,) = forward.types
        (y,) = lookup(op).infer((x,), lookup(op).complete_attrs(forward.attrs))
        if op == "max_pool2d":
            return OpCase("max_pool2d_dx", (x, y), forward.attrs)
        return OpCase("avg_pool2d_dx", (y,), {**forward.attrs, "input_shape": x.shape})

    return case


def _gradient_of_rows(op: str) -> Callable[[Draw], OpCase]:
    def case(draw: Draw) -> OpCase:
        (x,) = draw(draw_case("layer_norm")).types
        return OpCase(op, (x, x, x.with_shape((*x.shape[:-1], 1))), {})

    return case


def _cross_entropy_dx(draw: Draw) -> OpCase:
    case = draw(draw_case("cross_entropy"))
    return OpCase("cross_entropy_dx", (*case.types, TensorType(F32, ())), {}, classes=case.classes)


def _take_dx(draw: Draw) -> OpCase:
    case = draw(draw_case("take"))
    (y,) = lookup("take").infer(case.types, case.attrs)
    attrs = {**case.attrs, "input_shape": case.types[0].shape}
    return OpCase("take_dx", (y, case.types[1]), attrs, classes=case.classes)


def _channels(op: str, count: int) -> Callable[[Draw], OpCase]:
    """Operands of the shape of a batch, and vectors over its channels."""

    def case(draw: Draw) -> OpCase:
        shape = tuple(draw(st.lists(st.integers(1, 5), min_size=2, max_size=4)))
        x, vector = TensorType(F32, shape), TensorType(F32, shape[-1:])
        return OpCase(op, (x,) if count == 1 else (x, x, vector, vector), {})

    return case


def _dropout(draw: Draw) -> OpCase:
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    types = (TensorType(F32, shape), TensorType(I32, ()))
    return OpCase("dropout", types, {"p": draw(st.floats(0, 0.9)), "stream": 3})


CASES: dict[str, Callable[[Draw], OpCase]] = {
    "conv2d_dw": _conv_dw,
    "max_pool2d_dx": _gradient_of_pool("max_pool2d"),
    "avg_pool2d_dx": _gradient_of_pool("avg_pool2d"),
    "layer_norm_dx": _gradient_of_rows("layer_norm_dx"),
    "rms_norm_dx": _gradient_of_rows("rms_norm_dx"),
    "cross_entropy_dx": _cross_entropy_dx,
    "take_dx": _take_dx,
    "moments": _channels("moments", 1),
    "batch_norm_sums": _channels("batch_norm_sums", 4),
    "dropout": _dropout,
}


def _arrays(case: OpCase, seed: int) -> list[np.ndarray]:
    """Numbers for the operands: a seed for dropout, some labels that do not count, ties."""
    rng = np.random.default_rng(seed)
    if case.op == "dropout":
        return [rng.standard_normal(case.types[0].shape).astype(np.float32), np.int32(seed)]
    arrays = case.arrays(seed)
    if case.op.startswith("cross_entropy"):
        arrays[1] = np.where(rng.random(arrays[1].shape) < 0.2, -100, arrays[1])
    if case.op in ("max_pool2d", "max_pool2d_dx") and arrays[0].size > 3:
        arrays[0].flat[rng.integers(arrays[0].size, size=2)] = np.nan, 0.5
        arrays[0] = np.round(arrays[0])  # some maxima are equal
    return arrays


def _graph_of(case: OpCase) -> Graph:
    g = Builder(Graph("case"))
    inputs = [g.input(f"x{place}", type_) for place, type_ in enumerate(case.types)]
    for place, value in enumerate(g.emit(case.op, *inputs, **case.attrs).results):
        g.output(f"y{place}", value)
    return g.graph


@pytest.mark.parametrize("op", sorted(RULES.keys() - UPDATES - {"unpack_mask"}))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_rule_gives_what_the_op_gives(op: str, data: st.DataObject) -> None:
    case = CASES[op](data.draw) if op in CASES else data.draw(draw_case(op))
    arrays = _arrays(case, data.draw(st.integers(0, 99)))
    inputs = {f"x{place}": array for place, array in enumerate(arrays)}
    graph = _graph_of(case)
    with np.errstate(all="ignore"):
        wanted = run(graph, inputs, {})
        legalize(graph, TARGET)
        verify(graph)
        found = run(graph, inputs, {})
    assert {node.op for node in graph.nodes} <= FEW
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-5)


def _trained(program: Program, steps: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    params = {name: param.data.copy() for name, param in program.params.items()}
    for index, batch in enumerate(steps):
        inputs = {**batch, "step": np.int32(index + 1), "lr": np.float32(0.05)}
        params["loss"] = run(program.entries["train"].graph, inputs, params)["loss"]
    return params


@pytest.mark.parametrize("optimizer", [Sgd(momentum=0.9, weight_decay=0.1), Adam(), Lion()])
def test_a_target_of_few_ops_trains_the_same(optimizer: Optimizer) -> None:
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


def test_an_embedding_and_attention_train_the_same() -> None:
    ends = []
    for target in (Target(), TARGET):
        program = compile_program(attention_net(32), Training(), target=target, check=True)
        rng = np.random.default_rng(0)
        x = rng.standard_normal((32, 16)).astype(np.float32)
        ends.append(_trained(program, [{"x": x, "target": np.asarray([1])}] * 2))
    for name, array in ends[0].items():
        np.testing.assert_allclose(ends[1][name], array, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_table_that_its_rows_update_trains_the_same() -> None:
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


def test_an_op_without_a_rule_is_refused_by_name() -> None:
    g = Builder(Graph("case"))
    g.output("y", g.cumsum(g.input("x", TensorType(F32, (3,))), axis=0))
    with pytest.raises(CompileError, match="target few has no cumsum, and nothing legalises it"):
        legalize(g.graph, TARGET)


def test_a_dtype_that_the_target_lacks_is_refused_by_name() -> None:
    g = Builder(Graph("case"))
    g.output("y", g.neg(g.input("x", TensorType(I64, (3,)))))
    with pytest.raises(CompileError, match=r"has no i64 .*; it has f32"):
        legalize(g.graph, Target(name="few", dtypes=frozenset({F32})))


def test_rules_are_of_ops_that_exist() -> None:
    assert set(RULES) <= {op.name for op in all_ops()}
