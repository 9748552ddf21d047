"""Optimizer states in bf16 or 8 bits: trainings stay close to those with f32 states."""

import numpy as np
import pytest

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, Builder, DType, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.quantization import Quantization
from pockengine.compiler.ir.scalars import numbers_of
from pockengine.compiler.ir.state_blocks import decode, dynamic_map, encode
from pockengine.compiler.optim import (
    Adagrad,
    Adam,
    AdamW,
    Lamb,
    Lion,
    NAdam,
    Optimizer,
    RMSprop,
    Sgd,
)
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.storage import Storage
from pockengine.compiler.target import Target
from pockengine.errors import CompileError

Arrays = dict[str, np.ndarray]
SIZE = (70, 71)
OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Adam(weight_decay=0.01),
    "adamw": AdamW(),
    "momentum": Sgd(0.9),
    "nadam": NAdam(),
    "lion": Lion(),
    "rmsprop": RMSprop(0.9, momentum=0.5),
    "adagrad": Adagrad(initial_accumulator_value=0.5),
}


def net() -> Graph:
    """loss = mean((x w - y)^2)."""
    g = Builder(Graph("net"))
    x, y = (g.input(name, TensorType(F32, (32, size))) for name, size in (("x", 70), ("y", 71)))
    w = g.param("w", np.random.default_rng(0).standard_normal(SIZE).astype(np.float32))
    loss = g.reduce_mean(g.square(g.sub(g.matmul(x, w), y)), axes=(0, 1), keepdims=False)
    g.output("loss", loss)
    return g.graph


def trained(
    optimizer: Optimizer, storage: Storage, steps: int = 10
) -> tuple[Program, list[float], Arrays]:
    """Train and return the losses and the trained params."""
    program = compile_program(net(), Training(optimizer=optimizer, storage=storage), check=True)
    params = {name: param.data.copy() for name, param in program.params.items()}
    rng, losses = np.random.default_rng(1), []
    x, y = (rng.standard_normal((32, size)).astype(np.float32) for size in SIZE)
    for index in range(1, steps + 1):
        controls = {"lr": np.float32(0.01), "step": np.int32(index), "seed": np.int32(index)}
        outputs = run(program.entries["train"].graph, {"x": x, "y": y, **controls}, params)
        losses.append(float(outputs["loss"]))
    return program, losses, params


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_steps_stay_near_those_of_f32_states(name: str) -> None:
    _, exact, expected = trained(OPTIMIZERS[name], Storage())
    for states, near in (("bf16", 0.02), ("8bit", 0.05)):
        program, losses, found = trained(OPTIMIZERS[name], Storage(states=states))
        moved = expected["w"] - program.params["w"].data
        error = np.linalg.norm(found["w"] - expected["w"]) / np.linalg.norm(moved)
        assert losses[0] == exact[0]
        np.testing.assert_allclose(losses, exact, rtol=near)
        assert 0 < error < 2 * near, (states, error)


def test_states_use_two_bytes_or_one_and_a_scale_per_block() -> None:
    def taken(states: str) -> int:
        params = trained(Adam(), Storage(states=states), 1)[0].params.values()
        return sum(p.value.type.nbytes for p in params if p.name.startswith("optimizer."))

    size, blocks = 70 * 71, 20
    assert [taken(states) for states in ("f32", "bf16", "8bit")] == [
        8 * size,
        4 * size,
        2 * size + 8 * blocks,
    ]


def test_second_moments_are_unsigned() -> None:
    program, *_ = trained(Adam(), Storage(states="8bit"), 1)
    (update,) = [n for n in program.entries["train"].graph.nodes if n.op == "blockwise_update"]
    states = [update.operands[place].name for place in update.attrs["unsigned"]]
    assert states == ["optimizer.second.w"]
    program, *_ = trained(RMSprop(0.9, momentum=0.5), Storage(states="8bit"), 1)
    (update,) = [n for n in program.entries["train"].graph.nodes if n.op == "blockwise_update"]
    assert update.operands[update.attrs["unsigned"][0]].name == "optimizer.square.w"
    assert update.operands[update.attrs["signed"][0]].name == "optimizer.velocity.w"


def test_bf16_second_moments_decay() -> None:
    """A thousandth is less than half a bf16 unit: round-to-nearest would not change the state."""
    g = Builder(Graph("net"))
    x = g.input("x", TensorType(F32, ()))
    w = g.param("w", np.ones(4096, np.float32))
    g.output("loss", g.reduce_sum(g.mul(w, x), axes=(0,), keepdims=False))
    program = compile_program(g.graph, Training(optimizer=Adam(), storage=Storage(states="bf16")))
    params = {name: param.data.copy() for name, param in program.params.items()}
    for index in range(1, 401):
        controls = {"lr": np.float32(0), "step": np.int32(index), "seed": np.int32(index)}
        inputs = {"x": np.float32(index == 1), **controls}
        run(program.entries["train"].graph, inputs, params)
    second = numbers_of(params["optimizer.second.w"])
    assert second.mean() == pytest.approx(0.001 * 0.999**399, rel=0.05)


def test_positive_states_never_round_to_zero() -> None:
    numbers = np.array([1.0, 1e-30, 0.0], np.float32)
    codes, scales = encode(numbers, signed=False)
    assert decode(codes, scales, signed=False).tolist() == [1.0, pytest.approx(3.25e-7), 0.0]


def test_every_code_round_trips() -> None:
    for signed in (True, False):
        table = dynamic_map(signed)
        codes, scales = encode(table * np.float32(0.25), signed)
        assert codes.tolist() == list(range(256))
        assert decode(codes, scales, signed).tolist() == (table * np.float32(0.25)).tolist()


def test_states_of_integer_weights_are_stored_small() -> None:
    graph = net()
    scales = tuple(0.01 + 0.001 * np.arange(71))
    graph.params["w"].quantization = Quantization(scales, (0,) * 71, axis=1)
    training = Training(optimizer=Sgd(0.9), storage=Storage(states="bf16"))
    params = compile_program(graph, training, check=True).params
    kinds = {name: param.value.dtype for name, param in params.items()}
    assert kinds == {
        "w": DType.I8,
        "optimizer.velocity.w": DType.BF16,
        "optimizer.remainder.w": DType.I8,
    }


@pytest.mark.parametrize("optimizer", [Sgd(), Lamb()])
def test_optimizers_without_storable_states_are_refused(optimizer: Optimizer) -> None:
    with pytest.raises(CompileError, match="cannot be stored as 8bit: "):
        compile_program(net(), Training(optimizer=optimizer, storage=Storage(states="8bit")))


def test_error_names_a_target_without_such_updates() -> None:
    training = Training(optimizer=Adam(), storage=Storage(states="bf16"))
    small = Target(name="small", ops=frozenset({"add"}))
    with pytest.raises(CompileError, match="target small keeps optimizer states in f32"):
        compile_program(net(), training, target=small)


def test_f16_is_refused() -> None:
    with pytest.raises(CompileError, match="optimizer states are stored as f32, bf16, 8bit"):
        Storage(states="f16")


def test_gradients_of_micro_batches_stay_f32() -> None:
    training = Training(optimizer=Adam(), micro_batches=2, storage=Storage(states="8bit"))
    params = compile_program(net(), training, check=True).params
    assert params["optimizer.gradient.w"].value.dtype is F32
    assert params["optimizer.first.w"].value.dtype is DType.U8
