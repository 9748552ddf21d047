"""Trained weights in bf16: on average, steps equal those of f32 weights, and none is lost."""

import numpy as np
import pytest

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Builder, DType, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.scalars import numbers_of
from pockengine.compiler.optim import Adam, AdamW, Lion, Muon, Optimizer, Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.store_trained import StoreTrained
from pockengine.compiler.program import Program
from pockengine.compiler.sparse.scheme import FULL, Scheme
from pockengine.compiler.storage import Storage
from pockengine.compiler.target import Target
from pockengine.errors import CompileError

BF16 = Storage(trained="bf16")
SIZE = (70, 71)
STEPS = 20


def net() -> Graph:
    """loss = mean((x w + b - y)^2)."""
    g = Builder(Graph("net"))
    x, y = (g.input(name, TensorType(F32, (32, size))) for name, size in (("x", 70), ("y", 71)))
    w = g.param("w", np.random.default_rng(0).standard_normal(SIZE).astype(np.float32))
    out = g.add(g.matmul(x, w), g.param("b", np.zeros(71, np.float32)))
    g.output("loss", g.reduce_mean(g.square(g.sub(out, y)), axes=(0, 1), keepdims=False))
    return g.graph


def trained(optimizer: Optimizer, storage: Storage) -> tuple[Program, list[float], np.ndarray]:
    """Train and return the losses and the trained weights."""
    program = compile_program(net(), Training(optimizer=optimizer, storage=storage), check=True)
    params = {name: param.data.copy() for name, param in program.params.items()}
    rng, losses = np.random.default_rng(1), []
    x, y = (rng.standard_normal((32, size)).astype(np.float32) for size in SIZE)
    for index in range(1, STEPS + 1):
        controls = {"lr": np.float32(0.01), "step": np.int32(index), "seed": np.int32(index)}
        outputs = run(program.entries["train"].graph, {"x": x, "y": y, **controls}, params)
        losses.append(float(outputs["loss"]))
    return program, losses, numbers_of(params["w"])


@pytest.mark.parametrize(
    "optimizer", [Sgd(), Sgd(0.9, weight_decay=0.01), AdamW(), Lion(), Muon()], ids=str
)
def test_steps_stay_close_to_those_of_f32_weights(optimizer: Optimizer) -> None:
    _, exact, expected = trained(optimizer, Storage())
    _, losses, found = trained(optimizer, BF16)
    np.testing.assert_allclose(losses, exact, rtol=0.02)
    apart = found - expected
    assert 0 < np.abs(apart).mean() < 0.01  # near 1 the spacing of bf16 is 0.008
    assert abs(apart.mean()) < 6 * apart.std() / apart.size**0.5  # unbiased


def test_entries_read_bf16_weights_and_f32_vectors() -> None:
    program, *_ = trained(Adam(), BF16)
    kinds = {name: param.value.dtype for name, param in program.params.items()}
    assert kinds["w"] is DType.BF16
    assert kinds["b"] is kinds["optimizer.first.w"] is F32
    for entry in program.entries.values():
        assert entry.graph.params["w"].value.type == TensorType(DType.BF16, SIZE)


def test_steps_below_one_bf16_unit_add_up() -> None:
    """A step of a thousandth of a bf16 unit changes a thousandth of the weights."""
    g = Builder(Graph("net"))
    x = g.input("x", TensorType(F32, (1, 400)))
    w = g.param("w", np.ones((400, 400), np.float32))
    total = g.reduce_sum(g.matmul(x, w), axes=(0, 1), keepdims=False)
    g.output("loss", total)
    program = compile_program(g.graph, Training(optimizer=Sgd(), storage=BF16))
    params = {name: param.data.copy() for name, param in program.params.items()}
    inputs = {"x": np.ones((1, 400), np.float32), "lr": np.float32(2**-8 / 50)}
    for index in range(1, 401):
        run(program.entries["train"].graph, {**inputs, "seed": np.int32(index)}, params)
    moved = 1 - numbers_of(params["w"]).astype(np.float64).mean()
    assert moved == pytest.approx(400 * 2**-8 / 50, rel=0.25)


def test_rows_are_gathered_before_decoding() -> None:
    g = Builder(Graph("net"))
    table = g.param("table", np.random.default_rng(0).standard_normal((90, 64)).astype(np.float32))
    rows = g.take(table, g.input("ids", TensorType(I64, (5,))), axis=0)
    g.output("loss", g.reduce_mean(g.square(rows), axes=(0, 1), keepdims=False))
    program = compile_program(g.graph, Training(optimizer=Sgd(), storage=BF16))
    graph = program.entries["predict" if "predict" in program.entries else "evaluate"].graph
    decoded = [node.result.shape for node in graph.nodes if node.op == "cast"]
    assert all(shape == (5, 64) for shape in decoded)
    assert program.params["table"].value.dtype is DType.BF16


def test_trainings_without_storable_weights_are_refused() -> None:
    with pytest.raises(CompileError, match="stored as bf16: no weight of a li"):
        compile_program(net(), Training(Scheme("vectors", (("b", FULL),)), storage=BF16))


def test_error_names_unsupported_updates() -> None:
    g = Builder(Graph("net"))
    w = g.param("w", np.zeros(SIZE, np.float32))
    g.emit("ema_update", w, g.input("x", TensorType(F32, SIZE)), momentum=0.1)
    with pytest.raises(
        CompileError, match=r"w is updated by ema_update, .*; leave trained weights"
    ):
        StoreTrained({"w"}).run(g.graph)


def test_error_names_a_target_without_such_updates() -> None:
    small = Target(name="small", ops=frozenset({"add"}))
    with pytest.raises(CompileError, match="target small keeps trained weights in f32"):
        compile_program(net(), Training(storage=BF16), target=small)


def test_f16_is_refused() -> None:
    with pytest.raises(CompileError, match="that train are stored as f32, bf16, not 'f16'"):
        Storage(trained="f16")
