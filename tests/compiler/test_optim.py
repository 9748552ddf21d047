"""Every optimizer against PyTorch's of the same name, with clipping and micro-batches."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.types import f32
from pockengine.compiler.optim import (
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Asgd,
    Groups,
    Lion,
    Maximize,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    Rprop,
    Sgd,
    Update,
)
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.errors import CompileError
from pockengine.tests.compiler.regression import (
    RATE,
    STEPS,
    assert_same,
    data,
    ours,
    rate,
    regression,
)
from pockengine.tests.compiler.regression_torch import Params, theirs

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
    "sgd-dampening": (
        Sgd(0.9, 0.01, dampening=0.3),
        lambda p: torch.optim.SGD(p, RATE, 0.9, 0.3, 0.01),
    ),
    "adam-amsgrad": (
        Adam((0.5, 0.6), weight_decay=0.01, amsgrad=True),
        lambda p: torch.optim.Adam(p, RATE, (0.5, 0.6), weight_decay=0.01, amsgrad=True),
    ),
    "adamw-amsgrad": (
        AdamW((0.5, 0.6), amsgrad=True),
        lambda p: torch.optim.AdamW(p, RATE, (0.5, 0.6), amsgrad=True),
    ),
    "rmsprop-centered": (
        RMSprop(0.9, weight_decay=0.01, centered=True),
        lambda p: torch.optim.RMSprop(p, RATE, 0.9, weight_decay=0.01, centered=True),
    ),
    "rmsprop-centered-momentum": (
        RMSprop(0.9, momentum=0.8, centered=True),
        lambda p: torch.optim.RMSprop(p, RATE, 0.9, momentum=0.8, centered=True),
    ),
    "adagrad-start": (
        Adagrad(initial_accumulator_value=0.5),
        lambda p: torch.optim.Adagrad(p, RATE, initial_accumulator_value=0.5),
    ),
    "maximize": (
        Maximize(AdamW()),
        lambda p: torch.optim.AdamW(p, RATE, maximize=True),
    ),
    "adadelta": (
        Adadelta(weight_decay=0.01),
        lambda p: torch.optim.Adadelta(p, RATE, weight_decay=0.01),
    ),
    "adamax": (
        Adamax((0.8, 0.9), weight_decay=0.01),
        lambda p: torch.optim.Adamax(p, RATE, (0.8, 0.9), weight_decay=0.01),
    ),
    "asgd": (
        Asgd(lambd=0.1, t0=3, weight_decay=0.01),
        lambda p: torch.optim.ASGD(p, RATE, lambd=0.1, t0=3, weight_decay=0.01),
    ),
    "nadam": (
        NAdam(weight_decay=0.01),
        lambda p: torch.optim.NAdam(p, RATE, weight_decay=0.01),
    ),
    "nadam-decoupled": (
        NAdam(weight_decay=0.1, momentum_decay=0.5, decoupled_weight_decay=True),
        lambda p: torch.optim.NAdam(
            p, RATE, weight_decay=0.1, momentum_decay=0.5, decoupled_weight_decay=True
        ),
    ),
    "radam": (
        RAdam(weight_decay=0.01),
        lambda p: torch.optim.RAdam(p, RATE, weight_decay=0.01),
    ),
    "radam-decoupled": (
        RAdam((0.8, 0.9), weight_decay=0.1, decoupled_weight_decay=True),
        lambda p: torch.optim.RAdam(
            p, RATE, (0.8, 0.9), weight_decay=0.1, decoupled_weight_decay=True
        ),
    ),
    "radam-never-rectified": (
        RAdam((0.8, 0.6)),
        lambda p: torch.optim.RAdam(p, RATE, (0.8, 0.6)),
    ),
    "adam-without-momentum": (
        Adam((0.0, 0.6), weight_decay=0.01),
        lambda p: torch.optim.Adam(p, RATE, (0.0, 0.6), weight_decay=0.01),
    ),
    "nadam-without-momentum": (
        NAdam((0.0, 0.9)),
        lambda p: torch.optim.NAdam(p, RATE, (0.0, 0.9)),
    ),
    "radam-without-memory": (
        RAdam((0.0, 0.0)),
        lambda p: torch.optim.RAdam(p, RATE, (0.0, 0.0)),
    ),
    "adamax-without-memory": (
        Adamax((0.0, 0.0)),
        lambda p: torch.optim.Adamax(p, RATE, (0.0, 0.0)),
    ),
    "rprop": (
        Rprop((0.4, 1.3), (0.01, 0.1)),
        lambda p: torch.optim.Rprop(p, RATE, (0.4, 1.3), (0.01, 0.1)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_optimizer_equals_torch(name: str) -> None:
    optimizer, make = CASES[name]
    assert_same(ours(Training(optimizer=optimizer)), theirs(make))


def test_lion_matches_its_paper() -> None:
    """Two steps by hand: p -= lr (sign(b1 m + (1 - b1) g) + d p); m = b2 m + (1 - b2) g."""
    params = ours(Training(optimizer=Lion((0.9, 0.99), 0.1)), steps=2)
    graph = regression()
    w, m = graph.params["w"].data.astype(np.float64), np.zeros((5, 3))
    b, mb = graph.params["b"].data.astype(np.float64), np.zeros(3)
    for step in range(2):
        x, y = data(step).values()
        error = 2 * (x @ w + b - y) / y.size
        gw, gb = x.T @ error, error.sum(0)
        w -= rate(step) * (np.sign(0.9 * m + 0.1 * gw) + 0.1 * w)
        b -= rate(step) * (np.sign(0.9 * mb + 0.1 * gb) + 0.1 * b)
        m, mb = 0.99 * m + 0.01 * gw, 0.99 * mb + 0.01 * gb
    np.testing.assert_allclose(params["w"], w, rtol=1e-5)
    np.testing.assert_allclose(params["b"], b, rtol=1e-5)


def test_state_scaled_by_a_number_is_not_constant() -> None:
    class Decayed:
        """v = v / 2 + g;  p -= lr v, with the halving as a separate node."""

        def update(self, update: Update) -> None:
            g, state = update.g, update.state("velocity")
            moved = g.add(g.mul(state, g.scalar(0.5)), update.grad)
            g.emit("assign", state, moved)
            update.emit("sgd_update", moved, update.lr)

    expected = ours(Training(optimizer=Sgd(momentum=0.5)))
    found = ours(Training(optimizer=Decayed()))
    assert_same(found, {name: expected[name] for name in ("w", "b")})


def test_groups_match_names() -> None:
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


def test_micro_batches_are_clipped_separately() -> None:
    limit, count = 2.5, 3
    graph = regression()
    w = torch.from_numpy(graph.params["w"].data.T.copy()).requires_grad_()
    b = torch.from_numpy(graph.params["b"].data.copy()).requires_grad_()
    sizes = []
    for first in range(0, STEPS, count):
        means = [torch.zeros_like(w), torch.zeros_like(b)]
        for step in range(first, first + count):
            x, y = (torch.from_numpy(array) for array in data(step).values())
            loss = torch.nn.functional.mse_loss(torch.nn.functional.linear(x, w, b), y)
            grads = torch.autograd.grad(loss, (w, b))
            size = torch.sqrt(sum((grad**2).sum() for grad in grads))
            sizes.append(float(size))
            for mean, grad in zip(means, grads, strict=True):
                mean += grad * min(1.0, limit / float(size)) / count
        with torch.no_grad():
            for param, mean in zip((w, b), means, strict=True):
                param -= float(rate(first // count)) * mean
    assert min(sizes) < limit < max(sizes)
    found = ours(Training(micro_batches=count, clip=Clip(micro_norm=limit)))
    assert_same(found, {"w": w.detach().numpy().T, "b": b.detach().numpy()})


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_noise_is_normal_and_differs_at_every_step(micro_batches: int) -> None:
    """With zero gradients, a step of plain descent is just the noise."""
    g = Builder(Graph("still"))
    x, w = g.input("x", f32(2, 3)), g.param("w", np.zeros((3, 20000), np.float32))
    b = g.param("b", np.zeros(20000, np.float32))
    g.output("loss", g.reduce_sum(g.square(g.add(g.matmul(x, w), b)), axes=(0, 1)))
    training = Training(clip=Clip(noise=0.5), micro_batches=micro_batches)
    program = compile_program(g.graph, training, check=True)
    graph = program.entries["train" if micro_batches == 1 else "update"].graph
    drawn = []
    for seed in (1, 2):
        params = {name: param.data.copy() for name, param in program.params.items()}
        feed = {
            "x": np.zeros((2, 3), np.float32),
            "lr": np.asarray(1, np.float32),
            "seed": np.asarray(seed, np.int32),
        }
        run(graph, {value.name: feed[value.name] for value in graph.inputs}, params)
        drawn += [params["w"].ravel() / 0.5, params["b"] / 0.5]
    for numbers in drawn:
        counted = np.sort(numbers.astype(np.float64))
        expected = torch.special.ndtr(torch.from_numpy(counted)).numpy()
        distance = np.abs(expected - (np.arange(counted.size) + 0.5) / counted.size).max()
        assert distance < 1.95 / np.sqrt(counted.size)  # Kolmogorov-Smirnov test at 0.001
    one, two = drawn[0], drawn[2]
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.02
    assert abs(np.corrcoef(drawn[0][:20000], drawn[1])[0, 1]) < 0.03


def test_adafactor_stores_a_row_and_a_column() -> None:
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
        lambda: Adagrad(initial_accumulator_value=-1),
        lambda: Sgd(0.9, nesterov=True, dampening=0.1),
        lambda: Adadelta(rho=1.0),
        lambda: Adamax((1.0, 0.9)),
        lambda: NAdam(momentum_decay=-1),
        lambda: RAdam(eps=-1),
        lambda: Rprop((1.1, 1.2)),
        lambda: Rprop(step_sizes=(2, 1)),
        lambda: Asgd(lambd=-1),
        lambda: Lion((1.0, 0.9)),
        lambda: Adafactor(d=0.5),
        lambda: Clip(norm=0),
        lambda: Clip(micro_norm=float("nan")),
        lambda: Clip(noise=-1.0),
        lambda: Clip(noise=float("nan")),
        lambda: Training(micro_batches=0),
        lambda: Training(clip=Clip(micro_norm=1.0)),
    ],
)
def test_impossible_settings_are_errors(make: Callable[[], object]) -> None:
    with pytest.raises(CompileError):
        make()
