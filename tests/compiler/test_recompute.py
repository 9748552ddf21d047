"""Recomputation: the same numbers in less memory, at the reported cost."""

from dataclasses import replace

import numpy as np
import pytest

from pockengine.backends.c.backend import FUSION
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Graph, Node, TensorType, Value
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.graph import resolve
from pockengine.compiler.ir.types import f32
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.ops import node_cost
from pockengine.compiler.optim import Adam
from pockengine.compiler.options import Training
from pockengine.compiler.passes.memory import recompute
from pockengine.compiler.passes.memory.tile_attention import FEWEST_ROWS, TileAttention
from pockengine.compiler.program import Program
from pockengine.compiler.storage import Storage
from pockengine.compiler.target import OPTIONAL, Choice, Target
from pockengine.errors import BudgetError, CompileError, GraphError
from pockengine.tests.compiler.small_nets import NetBuilder, attention_net, batches, residual_net
from pockengine.tests.compiler.transformers import Sizes, llama_net

SHAPE = {"batch": 4, "size": 12}


def compiled(budget: int | None) -> Program:
    return compile_program(residual_net(**SHAPE), Training(memory_budget=budget), check=True)


def peak_without_recompute() -> int:
    """Return the peak that budget fractions refer to, after recomputation that needs no budget."""
    target = Target(passes=OPTIONAL - {"recompute_elementwise"})
    return peak(compile_program(residual_net(**SHAPE), Training(), target=target, check=True))


def peak(program: Program) -> int:
    return program.entries["train"].plan.lower_bound


def operations(program: Program) -> int:
    return sum(node_cost(node) for node in program.entries["train"].graph.nodes)


@pytest.mark.parametrize("share", [0.9, 0.8, 0.7])
def test_budget_is_met_and_results_are_preserved(share: float) -> None:
    plain = compiled(None)
    budget = int(share * peak_without_recompute())
    lean = compiled(budget)
    assert peak(lean) <= budget
    results = []
    for program in (plain, lean):
        params = {name: param.data.copy() for name, param in program.params.items()}
        graph = program.entries["train"].graph
        losses = [float(run(graph, batch, params)["loss"]) for batch in batches(2, **SHAPE)]
        results.append((losses, params))
    assert results[0][0] == results[1][0]
    for name, data in results[0][1].items():
        np.testing.assert_array_equal(results[1][1][name], data)


def deep_net() -> Graph:
    """Eight convolutions in a row, each with batch norm; every third is wide."""
    net = NetBuilder("deep")
    x, target = net.g.input("x", f32(2, 12, 12, 8)), net.g.input("target", TensorType(I64, (2,)))
    for layer, channels in enumerate([16, 8, 4, 16, 8, 4, 16, 8]):
        x = net.conv(x, f"conv{layer}", channels, 3)
        x = net.relu6(net.batch_norm(x, f"norm{layer}"))
    return net.head(x, 4, target)


def test_expensive_values_are_saved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = compile_program(deep_net(), check=True)
    budget = int(0.7 * plain.arena_bytes)
    lean = compile_program(deep_net(), Training(memory_budget=budget), check=True)
    monkeypatch.setattr(recompute, "TRIALS", 0)
    monkeypatch.setattr(recompute, "EXCESS", 1 << 40)
    first = compile_program(deep_net(), Training(memory_budget=budget), check=True)
    assert max(lean.arena_bytes, first.arena_bytes) <= budget
    assert operations(plain) < operations(lean) < operations(first)
    x = np.random.default_rng(0).standard_normal((2, 12, 12, 8), np.float32)
    batch = {"x": x, "target": np.array([1, 3]), "lr": np.float32(0.1)}
    weights = [trained_weight(program, batch) for program in (plain, lean)]
    np.testing.assert_array_equal(*weights)


def trained_weight(program: Program, batch: dict[str, np.ndarray]) -> np.ndarray:
    """Return the first layer's weights after a step."""
    params = {name: param.data.copy() for name, param in program.params.items()}
    run(program.entries["train"].graph, batch, params)
    return params["conv0.weight"]


@pytest.mark.parametrize("large", [3000, 0], ids=["by value", "by block"])
def test_casts_of_saved_bf16_activations_precede_their_readers(
    large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Casts of saved activations move with the recomputations that read them."""
    monkeypatch.setattr(recompute, "LARGE", large)
    graph = llama_net(1, 32, Sizes(4, 32, 2, 64, 100))
    rounded = Training("full", Adam(), storage=Storage(activations="bf16"))
    plain = compile_program(graph, rounded)
    budget = int(0.8 * plain.arena_bytes)
    lean = compile_program(graph, replace(rounded, memory_budget=budget), check=True)
    assert lean.arena_bytes <= budget
    ids = np.random.default_rng(0).integers(0, 100, 32)
    feed = {"input_ids": ids[None], "labels": np.roll(ids, -1), "lr": np.float32(1e-3)}
    losses = []
    for program in (plain, lean):
        params = {name: param.data.copy() for name, param in program.params.items()}
        entry = program.entries["train"].graph
        losses.append(
            [float(run(entry, {**feed, "step": np.int32(n)}, params)["loss"]) for n in (1, 2, 3)]
        )
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)


def test_cost_is_reported() -> None:
    plain = compiled(None)
    budget = int(0.7 * peak_without_recompute())
    lean = compiled(budget)
    report = lean.recomputation
    assert report is not None
    assert report.dropped
    assert report.extra_operations == operations(lean) - operations(plain) > 0
    assert report.peak_after <= budget < report.peak_before


def test_large_budget_recomputes_nothing() -> None:
    lean, plain = compiled(10**9), compiled(None)
    assert lean.recomputation is None
    assert operations(lean) == operations(plain)


def scratch_of_products(node: Node) -> int:
    """Return large scratch for convolutions, as fast algorithms need it."""
    nodes = node.attrs["body"].nodes if node.op == "fusion" else [node]
    return 20000 * any(inner.op.startswith("conv2d") for inner in nodes)


@pytest.mark.parametrize("share", [0.95, 0.9, 0.8, 0.7, 0.6, 0.5])
def test_budget_bounds_the_arena_or_the_minimum_is_reported(share: float) -> None:
    target = Target(FUSION, lambda node: Choice("test", scratch_bytes=scratch_of_products(node)))
    forward = residual_net(**SHAPE)
    budget = int(share * compile_program(forward, target=target).arena_bytes)
    try:
        program = compile_program(forward, Training(memory_budget=budget), target=target)
    except BudgetError as error:
        budget = max(error.least, budget + 1)
        program = compile_program(forward, Training(memory_budget=budget), target=target)
    assert program.arena_bytes <= budget
    assert program.recomputation is not None
    assert program.recomputation.peak_after == program.entries["train"].plan.size


def test_budget_bounds_inference() -> None:
    def scratch(node: Node) -> int:  # training computes between a convolution and its epilogue
        fused = node.attrs["body"].nodes if node.op == "fusion" else []
        return 10**6 * any(inner.op == "conv2d" for inner in fused)

    target = Target(FUSION, lambda node: Choice("test", scratch_bytes=scratch(node)))
    training = Training(memory_budget=10**6)
    with pytest.raises(
        BudgetError, match=r"entry (evaluate|predict) takes an arena of \d{7} bytes"
    ):
        compile_program(residual_net(**SHAPE), training, target=target)


def test_impossible_budget_reports_the_minimum() -> None:
    with pytest.raises(CompileError, match=r"reaches an arena of \d+ bytes, not 1000"):
        compiled(1000)


def test_attention_is_tiled_if_scores_exceed_the_budget() -> None:
    rows, heads = 256, 2
    scores = heads * rows * rows * 4
    plain, lean = (
        compile_program(attention_net(rows, heads), Training(memory_budget=budget), check=True)
        for budget in (None, scores + scores // 4)
    )
    assert peak(plain) > 2 * scores > 1.6 * peak(lean)
    for entry in lean.entries.values():
        assert max(value.type.nbytes for value in entry.graph.values()) < scores
    rng = np.random.default_rng(0)
    batch = {
        "x": rng.standard_normal((rows, heads * 8)).astype(np.float32),
        "target": np.array([1]),
        "lr": np.float32(0.5),
    }
    losses = []
    for program in (plain, lean):
        params = {name: param.data.copy() for name, param in program.params.items()}
        graph = program.entries["train"].graph
        losses.append([float(run(graph, batch, params)["loss"]) for _ in range(3)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert losses[0][2] < losses[0][0]


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 33])
def test_attention_with_few_rows_is_tiled_or_whole(rows: int) -> None:
    graph = attention_net(rows)
    for budget in (1, 64, 1000):
        tiled = clone(graph)
        TileAttention(budget).run(tiled)
        verify(tiled)
        joined = [node for node in tiled.nodes if node.op == "concat"]
        assert len(joined) == (rows > FEWEST_ROWS)
    with pytest.raises(CompileError, match=r"not 1000"):
        compile_program(graph, Training(memory_budget=1000), check=True)


def test_cyclic_replacements_are_an_error() -> None:
    first, second = (Value(name, TensorType(F32, ())) for name in "ab")
    with pytest.raises(GraphError, match="replaced by itself"):
        resolve(first, {first: second, second: first})
