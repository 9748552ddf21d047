"""Every optimiser against PyTorch's of the same name; clipping and micro-batches too."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from pockengine.compiler.compile import Training, compile_program
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import (
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Groups,
    Lion,
    Optimizer,
    RMSprop,
    Sgd,
    Update,
)
from pockengine.compiler.passes.differentiate import Clip
from pockengine.errors import CompileError

RATE = 0.05
STEPS = 6
Params = list[torch.Tensor]

CASES: dict[str, tuple[Optimizer, Callable[[Params], torch.optim.Optimizer]]] = {
    "sgd": (Sgd(), lambda p: torch.optim.SGD(p, RATE)),
    "sgd-nesterov": (
        Sgd(0.9, 0.01, nesterov=True),
        lambda p: torch.optim.SGD(p, RATE, 0.9, weight_decay=0.01, nesterov=True),
    ),
    "adam": (
        Adam(weight_decay=0.01),
        lambda p: torch.optim.Adam(p, RATE, weight_decay=0.01),
    ),
    "adamw": (AdamW((0.8, 0.99)), lambda p: torch.optim.AdamW(p, RATE, (0.8, 0.99))),
    "rmsprop": (RMSprop(), lambda p: torch.optim.RMSprop(p, RATE)),
    "rmsprop-momentum": (
        RMSprop(0.9, momentum=0.8, weight_decay=0.01),
        lambda p: torch.optim.RMSprop(p, RATE, 0.9, momentum=0.8, weight_decay=0.01),
    ),
    "adagrad": (
        Adagrad(0.1, 0.01),
        lambda p: torch.optim.Adagrad(p, RATE, lr_decay=0.1, weight_decay=0.01),
    ),
    "adafactor": (
        Adafactor(weight_decay=0.01),
        lambda p: torch.optim.Adafactor(p, RATE, weight_decay=0.01),
    ),
}


def regression() -> Graph:
    """loss = mean((x w + b - y)^2), with a weight that PyTorch would hold transposed."""
    g = Builder(Graph("regression"))
    rng = np.random.default_rng(0)
    x = g.input("x", TensorType(F32, (8, 5)))
    y = g.input("y", TensorType(F32, (8, 3)))
    w = g.param("w", rng.standard_normal((5, 3)).astype(np.float32), permutation=(1, 0))
    b = g.param("b", rng.standard_normal(3).astype(np.float32))
    error = g.sub(g.add(g.matmul(x, w), b), y)
    g.output("loss", g.reduce_mean(g.square(error), axes=(0, 1)))
    return g.graph


def data(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {
        "x": rng.standard_normal((8, 5)).astype(np.float32),
        "y": rng.standard_normal((8, 3)).astype(np.float32),
    }


def ours(training: Training, steps: int = STEPS) -> dict[str, np.ndarray]:
    program = compile_program(regression(), training, check=True)
    params = {name: param.data.copy() for name, param in program.params.items()}
    scalars = {"lr": np.asarray(RATE, np.float32)}
    for step in range(steps):
        scalars["step"] = np.asarray(step // training.micro_batches + 1, np.int32)
        run(program.entries["train"].graph, {**data(step), **scalars}, params)
        if training.micro_batches > 1 and (step + 1) % training.micro_batches == 0:
            run(program.entries["update"].graph, scalars, params)
    return params


def theirs(
    make: Callable[[Params], torch.optim.Optimizer],
    clip: Callable[[Params], object] = lambda params: None,
    micro_batches: int = 1,
) -> dict[str, np.ndarray]:
    graph = regression()
    w = torch.from_numpy(graph.params["w"].data.T.copy()).requires_grad_()
    b = torch.from_numpy(graph.params["b"].data.copy()).requires_grad_()
    optimizer = make([w, b])
    for step in range(STEPS):
        x, y = (torch.from_numpy(array) for array in data(step).values())
        loss = torch.nn.functional.mse_loss(torch.nn.functional.linear(x, w, b), y)
        (loss / micro_batches).backward()
        if (step + 1) % micro_batches == 0:
            clip([w, b])
            optimizer.step()
            optimizer.zero_grad()
    return {"w": w.detach().numpy().T, "b": b.detach().numpy()}


def assert_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_optimiser_equals_torch(name: str) -> None:
    optimizer, make = CASES[name]
    assert_same(ours(Training(optimizer=optimizer)), theirs(make))


def test_lion_follows_its_paper() -> None:
    """Two steps by hand: p -= lr (sign(b1 m + (1 - b1) g) + d p);  m = b2 m + (1 - b2) g."""
    params = ours(Training(optimizer=Lion((0.9, 0.99), 0.1)), steps=2)
    graph = regression()
    w, m = graph.params["w"].data.astype(np.float64), np.zeros((5, 3))
    b, mb = graph.params["b"].data.astype(np.float64), np.zeros(3)
    for step in range(2):
        x, y = data(step).values()
        error = 2 * (x @ w + b - y) / y.size
        gw, gb = x.T @ error, error.sum(0)
        w -= RATE * (np.sign(0.9 * m + 0.1 * gw) + 0.1 * w)
        b -= RATE * (np.sign(0.9 * mb + 0.1 * gb) + 0.1 * b)
        m, mb = 0.99 * m + 0.01 * gw, 0.99 * mb + 0.01 * gb
    np.testing.assert_allclose(params["w"], w, rtol=1e-5)
    np.testing.assert_allclose(params["b"], b, rtol=1e-5)


def test_state_that_is_scaled_by_a_number_is_no_constant() -> None:
    class Decayed:
        """v = v / 2 + g;  p -= lr v, with the halving as a node of its own."""

        def update(self, update: Update) -> None:
            g, state = update.g, update.state("velocity")
            moved = g.add(g.mul(state, g.scalar(0.5)), update.grad)
            g.emit("assign", state, moved)
            update.emit("sgd_update", moved, update.lr)

    expected = ours(Training(optimizer=Sgd(momentum=0.5)))
    found = ours(Training(optimizer=Decayed()))
    assert_same(found, {name: expected[name] for name in ("w", "b")})


def test_groups_choose_by_name() -> None:
    groups = Groups(Sgd(weight_decay=0.5), (("b", Sgd()),))

    def make(params: Params) -> torch.optim.Optimizer:
        w, b = params
        return torch.optim.SGD([{"params": [w], "weight_decay": 0.5}, {"params": [b]}], RATE)

    assert_same(ours(Training(optimizer=groups)), theirs(make))


def test_clipping_by_norm_and_by_value_equals_torch() -> None:
    def by_norm(params: Params) -> None:
        torch.nn.utils.clip_grad_norm_(params, 0.3)

    def by_value(params: Params) -> None:
        torch.nn.utils.clip_grad_value_(params, 0.1)

    def make(params: Params) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, RATE)

    assert_same(ours(Training(clip=Clip(norm=0.3))), theirs(make, by_norm))
    assert_same(ours(Training(clip=Clip(value=0.1))), theirs(make, by_value))


def test_micro_batches_accumulate_their_mean() -> None:
    training = Training(optimizer=Adam(), micro_batches=3)
    params = ours(training)
    assert_same(params, theirs(lambda p: torch.optim.Adam(p, RATE), micro_batches=3))
    assert not params["optimizer.gradient.w"].any()


def test_adafactor_keeps_a_row_and_a_column() -> None:
    program = compile_program(regression(), Training(optimizer=Adafactor()))
    states = {n: p.value.type.size for n, p in program.params.items() if "optimizer" in n}
    assert states == {
        "optimizer.rows.w": 3,
        "optimizer.columns.w": 5,
        "optimizer.square.b": 3,
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sgd(momentum=1.0),
        lambda: Adam((0.9, 1.0)),
        lambda: RMSprop(alpha=-1),
        lambda: Adagrad(eps=-1),
        lambda: Lion((1.0, 0.9)),
        lambda: Adafactor(d=0.5),
        lambda: Clip(norm=0),
        lambda: Training(micro_batches=0),
    ],
)
def test_impossible_settings_are_errors(make: Callable[[], object]) -> None:
    with pytest.raises(CompileError):
        make()
