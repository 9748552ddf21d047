"""Every optimizer in generated C agrees with the oracle, also for a share of the channels."""

import platform
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_entries, compile_program
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.ir.contents import Filled
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.graph import ParamKind
from pockengine.compiler.optim import (
    STATE_PREFIX,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Asgd,
    Groups,
    Lamb,
    Lars,
    Lion,
    Maximize,
    Muon,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    Rprop,
    Sgd,
    SparseAdam,
)
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.compiler.sparse import scheme as schemes
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.devices import load_device
from pockengine.tests.backends.c.trainings import check_training

STEPS = 10

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Sgd(weight_decay=0.01),
    "nesterov": Sgd(0.9, 0.01, nesterov=True),
    "adam": Adam(weight_decay=0.01),
    "adamw": AdamW(),
    "rmsprop": RMSprop(momentum=0.8, weight_decay=0.01),
    "adagrad": Adagrad(0.1, 0.01),
    "lion": Lion(),
    "adafactor": Adafactor(weight_decay=0.01),
}

TOGETHER: dict[str, Optimizer] = {
    "dampening": Sgd(0.9, 0.01, dampening=0.3),
    "amsgrad": Adam((0.5, 0.6), weight_decay=0.01, amsgrad=True),
    "adamw-amsgrad": AdamW((0.5, 0.6), amsgrad=True),
    "centered": RMSprop(0.9, eps=1e-3, weight_decay=0.01, centered=True),
    "centered-momentum": RMSprop(0.9, eps=1e-3, momentum=0.8, centered=True),
    "adagrad-start": Adagrad(initial_accumulator_value=0.5),
    "maximize": Maximize(Sgd(0.5)),
    "adadelta": Adadelta(weight_decay=0.01),
    "adamax": Adamax(weight_decay=0.01),
    "asgd": Asgd(lambd=0.1, t0=2, weight_decay=0.01),
    "nadam": NAdam(weight_decay=0.01),
    "nadam-decoupled": NAdam(weight_decay=0.1, decoupled_weight_decay=True),
    "radam": RAdam((0.8, 0.9), weight_decay=0.01),
    "radam-decoupled": RAdam((0.8, 0.9), weight_decay=0.1, decoupled_weight_decay=True),
    "rprop": Rprop((0.4, 1.3), (0.01, 0.1)),
    "lars": Lars(weight_decay=0.01, trust_coefficient=0.1),
    "lars-nesterov": Lars(weight_decay=0.01, trust_coefficient=0.1, nesterov=True),
    "lamb": Lamb(weight_decay=0.01),
    "muon": Muon(),
    "muon-others": Muon(nesterov=False, others=Lamb()),
    "sparseadam": SparseAdam(),
}
"""Elementwise optimizers: each trains its own weights in one program."""


def regression() -> Graph:
    """loss = mean((x w + b)^2)."""
    g = Builder(Graph("regression"))
    rng = np.random.default_rng(0)
    x = g.input("x", TensorType(F32, (6, 10)))
    w = g.param("w", rng.standard_normal((10, 7)).astype(np.float32))
    b = g.param("b", rng.standard_normal(7).astype(np.float32))
    y = g.add(g.matmul(x, w), b)
    g.output("loss", g.reduce_mean(g.square(y), axes=(0, 1), keepdims=False))
    return g.graph


def regressions() -> Graph:
    """The same for each optimizer of `TOGETHER`; the loss is the sum."""
    g = Builder(Graph("regressions"))
    rng = np.random.default_rng(0)
    x = g.input("x", TensorType(F32, (6, 10)))
    losses = []
    for name in TOGETHER:
        w = g.param(f"{name}.w", rng.standard_normal((10, 7)).astype(np.float32))
        b = g.param(f"{name}.b", rng.standard_normal(7).astype(np.float32))
        y = g.add(g.matmul(x, w), b)
        losses.append(g.reduce_mean(g.square(y), axes=(0, 1), keepdims=False))
    g.output("loss", reduce(g.add, losses))
    return g.graph


def trains_as_the_oracle(training: Training, folder: Path, graph: Graph | None = None) -> None:
    batches = np.random.default_rng(1).standard_normal((STEPS, 6, 10)).astype(np.float32)
    check_training(graph or regression(), training, {"x": batches}, folder)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_trains_as_the_oracle(name: str, tmp_path: Path) -> None:
    trains_as_the_oracle(Training(optimizer=OPTIMIZERS[name]), tmp_path)


@pytest.mark.parametrize(
    "choice",
    [
        schemes.FULL,
        schemes.ParamChoice("range", channels=(2, 5)),
        schemes.ParamChoice("channels", channels=(0, 4, 5, 9)),
    ],
    ids=["full", "range", "channels"],
)
def test_formulas_train_as_the_oracle(choice: schemes.ParamChoice, tmp_path: Path) -> None:
    rules = tuple((f"{name}.*", optimizer) for name, optimizer in TOGETHER.items())
    scheme = Scheme("drawn", (("*.w", choice), ("*.b", schemes.FULL)))
    training = Training(scheme=scheme, optimizer=Groups(Sgd(), rules))
    trains_as_the_oracle(training, tmp_path, regressions())


@pytest.mark.parametrize("name", ["nesterov", "adamw"])
def test_a_share_of_the_channels_is_updated_alone(name: str, tmp_path: Path) -> None:
    part = schemes.ParamChoice("range", channels=(2, 5))
    scheme = Scheme("part", (("w", part), ("b", schemes.FULL)))
    trains_as_the_oracle(Training(scheme=scheme, optimizer=OPTIMIZERS[name]), tmp_path)


@pytest.mark.parametrize("name", ["nesterov", "adamw", "adafactor"])
def test_any_set_of_channels_is_updated_alone(name: str, tmp_path: Path) -> None:
    part = schemes.ParamChoice("channels", channels=(0, 4, 5, 9))
    scheme = Scheme("set", (("w", part),))
    trains_as_the_oracle(Training(scheme=scheme, optimizer=OPTIMIZERS[name]), tmp_path)


def test_a_set_of_channels_gathers_gradients_of_micro_batches(tmp_path: Path) -> None:
    scheme = Scheme("set", (("w", schemes.ParamChoice("channels", channels=(1, 3, 8))),))
    training = Training(scheme=scheme, optimizer=Sgd(0.9), micro_batches=2, clip=Clip(norm=0.5))
    trains_as_the_oracle(training, tmp_path)


def test_gradients_clipped_by_norm(tmp_path: Path) -> None:
    trains_as_the_oracle(Training(clip=Clip(norm=0.5), optimizer=Sgd(0.9)), tmp_path)


def test_gradients_clipped_by_micro_batch(tmp_path: Path) -> None:
    trains_as_the_oracle(Training(micro_batches=2, clip=Clip(micro_norm=0.1)), tmp_path)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_noise_of_gradients(micro_batches: int, tmp_path: Path) -> None:
    training = Training(micro_batches=micro_batches, clip=Clip(norm=0.5, noise=0.3))
    trains_as_the_oracle(training, tmp_path)


def test_gradients_of_micro_batches_are_applied_together(tmp_path: Path) -> None:
    trains_as_the_oracle(Training(micro_batches=2, optimizer=AdamW()), tmp_path)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_that_were_read_are_updated_alone(axis: int, tmp_path: Path) -> None:
    """Also rows read several times, and indices out of range, which are clamped to the table."""
    g = Builder(Graph("embedding", checks_indices=False))
    shape = (40, 9) if axis == 0 else (9, 40)
    table = g.param("table", np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    ids = g.input("ids", TensorType(I64, (2, 5)))
    taken = g.reshape(g.take(table, ids, axis=axis), shape=(6, 15))
    g.output("loss", g.reduce_mean(g.square(taken), axes=(0, 1), keepdims=False))
    drawn = np.random.default_rng(1).integers(-3, 45, (4, 2, 5))
    drawn[:, :, 0] = 7
    program = check_training(g.graph, Training(), {"ids": drawn}, tmp_path)
    assert any(node.op == "take_update" for node in program.entries["train"].graph.nodes)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors are not slow")
def test_states_do_not_decay_to_subnormals(tmp_path: Path) -> None:
    """For which an Intel core takes 150 cycles a vector; a momentum decays to them in 850 steps."""
    g = Builder(Graph("decaying"))
    w = g.param("w", np.ones(40, np.float32))
    slope = g.input("slope", TensorType(F32, (40,)))
    g.output("loss", g.reduce_sum(g.mul(w, slope), axes=(0,), keepdims=False))
    backend = CBackend(load_device("host"))
    training = Training(optimizer=Sgd(0.9))
    program = compile_program(g.graph, training, target=backend.target(), check=True)
    slopes = np.where(np.arange(40) % 2, 2.0, 2e-38).astype(np.float32)
    with open_session(write_artifact(program, backend, tmp_path / "artifact")) as session:
        session.train_step({"slope": slopes}, lr=0.1)
        for _ in range(8):
            session.train_step({"slope": 0 * slopes}, lr=0.1)
        velocity = session.get_param(f"{STATE_PREFIX}velocity.w")
    np.testing.assert_array_equal(velocity[::2], 0.0)
    np.testing.assert_allclose(velocity[1::2], 2.0 * 0.9**8, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_cache_is_written_at_places_and_stored_nowhere(axis: int, tmp_path: Path) -> None:
    """It starts as zeros; an index out of range is dropped."""
    g = Builder(Graph("written", checks_indices=False))
    type_ = TensorType(F32, (2, 5, 3))
    cache = g.param("cache", Filled(type_), trainable=False, kind=ParamKind.CACHE)
    index = g.input("index", TensorType(I64, (2,)))
    shape = [*type_.shape]
    shape[axis] = 2
    new = g.input("new", TensorType(F32, tuple(shape)))
    g.output("before", g.add(cache, g.scalar(1.0)))
    g.emit("cache_update", cache, g.mul(new, g.scalar(2.0)), index, axis=axis)
    backend = CBackend(load_device("host"))
    program = compile_entries("written", {"write": g.graph}, target=backend.target(), check=True)
    artifact = write_artifact(program, backend, tmp_path / "artifact")
    assert not artifact.params
    state = {"cache": np.zeros(type_.shape, np.float32)}
    draw = np.random.default_rng(0)
    with open_session(artifact, threads=2) as session:
        for places in ([0, 1], [1, 9], [-1, 0], [1, 0]):
            inputs = {
                "index": np.array(places),
                "new": draw.standard_normal(new.shape, np.float32),
            }
            expected = run(g.graph, inputs, state)["before"]
            np.testing.assert_array_equal(session.run("write", inputs)["before"], expected)
        assert not session.params()
