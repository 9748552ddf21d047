"""A training that goes on from a checkpoint is the training that never stopped, bit for bit."""

import json
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pockengine.backends.c.artifact import Artifact, write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.schedule import Schedule
from pockengine.backends.c.session import Session
from pockengine.compiler.compile import Training
from pockengine.compiler.ir import F32, I32, I64, Builder, Graph, TensorType
from pockengine.compiler.optim import Adagrad, Adam, AdamW, Lion, Optimizer, RMSprop, Sgd
from pockengine.compiler.optim.adafactor import Adafactor
from pockengine.compiler.sizes import Range
from pockengine.compiler.sparse.lora import lora
from pockengine.compiler.variants import compile_variants
from pockengine.devices.schema import load_device
from pockengine.errors import RuntimeFailure
from pockengine.tests.backends.c.programs import compile_for

STEPS, SEED, RATE = 8, 7, 0.01
SCHEDULE = Schedule("cosine", RATE, steps=STEPS, warmup=2)
Arrays = dict[str, np.ndarray]


def dropout_graph(batch: int = 4) -> Graph:
    """Two layers with dropout between them, and a batch norm's running mean."""
    rng = np.random.default_rng(3)
    graph = Graph("dropping")
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (batch, 8)))
    labels = g.input("labels", TensorType(I64, (batch,)))
    seed = g.input("seed", TensorType(I32, ()))
    first = g.param("first.weight", rng.standard_normal((8, 16)).astype(np.float32))
    second = g.param("second.weight", rng.standard_normal((16, 3)).astype(np.float32))
    y = g.relu(g.matmul(x, first))
    running = g.param("running", np.zeros(16, np.float32), trainable=False)
    g.emit("ema_update", running, g.reduce_mean(y, axes=(0,), keepdims=False), momentum=0.1)
    logits = g.matmul(g.dropout(y, seed, p=0.5, stream=0), second)
    g.output("loss", g.cross_entropy(logits, labels))
    return graph


@dataclass(frozen=True)
class Case:
    """An artifact, and the batches of one training of it."""

    artifact: Artifact
    micro_batches: int
    batches: Sequence[Arrays]

    def train(self, session: Session, until: int) -> list[float]:
        """Take steps up to this number; every group of micro-batches ends with an update."""
        losses = []
        while session.steps < until:
            inputs = self.batches[session.steps % len(self.batches)]
            update = session.updates + 1 if self.micro_batches > 1 else session.steps + 1
            losses.append(float(session.train_step(inputs, SCHEDULE(update), SEED)["loss"]))
            if self.micro_batches > 1 and session.steps % self.micro_batches == 0:
                session.apply_updates(SCHEDULE(update))
        return losses

    def run(self, weights: Path, data: Path, saved: Path, steps: int, *more: object) -> list[float]:
        """Train by the runner; return the losses."""
        command = [str(self.artifact.executable), "train", "--weights", str(weights)]
        command += ["--data", str(data), "--steps", str(steps), "--lr", str(RATE)]
        command += ["--save", str(saved)]
        command += ["--schedule", "cosine", "--warmup", "2", "--total", str(STEPS)]
        command += map(str, more)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [float(np.float32(line["loss"])) for line in lines if "loss" in line]


def new_case(folder: Path, optimizer: Optimizer, micro_batches: int, scheme: str) -> Case:
    rules = lora(2, 4, ["*.weight"]) if scheme == "lora" else scheme
    training = Training(scheme=rules, optimizer=optimizer, micro_batches=micro_batches)
    program, backend = compile_for(dropout_graph(), load_device("host"), training)
    rng = np.random.default_rng(0)
    batches = [
        {
            "x": rng.standard_normal((4, 8)).astype(np.float32),
            "labels": rng.integers(0, 3, 4),
        }
        for _ in range(5)
    ]
    return Case(write_artifact(program, backend, folder / "artifact"), micro_batches, batches)


def same(a: Arrays, b: Arrays) -> None:
    assert a.keys() == b.keys()
    for name, array in a.items():
        np.testing.assert_array_equal(array, b[name], err_msg=name)


OPTIMIZERS = {
    "sgd": Sgd(),
    "momentum": Sgd(momentum=0.9, nesterov=True),
    "adam": Adam(),
    "adamw": AdamW(weight_decay=0.1),
    "rmsprop": RMSprop(),
    "adagrad": Adagrad(),
    "lion": Lion(),
    "adafactor": Adafactor(),
}


@pytest.mark.parametrize(
    ("name", "micro_batches", "scheme"),
    [
        *((name, 1, "full") for name in OPTIMIZERS),
        ("adam", 3, "full"),
        ("momentum", 2, "full"),
        ("adam", 1, "lora"),
        ("adamw", 2, "lora"),
    ],
)
def test_resumed_equals_uninterrupted(
    tmp_path: Path, name: str, micro_batches: int, scheme: str
) -> None:
    case = new_case(tmp_path, OPTIMIZERS[name], micro_batches, scheme)
    data, weights = tmp_path / "data", case.artifact.weights
    stacked = {key: np.stack([batch[key] for batch in case.batches]) for key in ("x", "labels")}
    save_file(stacked, data)
    with Session(case.artifact) as session:
        losses = case.train(session, STEPS)
        final = session.params()
    for stop in (1, 4, 5):
        halfway, end = tmp_path / f"python-{stop}", tmp_path / f"end-{stop}"
        with Session(case.artifact) as session:
            assert case.train(session, stop) == losses[:stop]
            session.save(halfway)
        with Session(case.artifact) as session:
            session.load(halfway)
            assert (session.steps, session.seed) == (stop, SEED)
            assert case.train(session, STEPS) == losses[stop:]
            same(session.params(), final)
        assert case.run(halfway, data, end, STEPS - stop) == losses[stop:]  # with the file's seed
        same({key: load_file(end)[key] for key in final}, final)
        by_runner = tmp_path / f"runner-{stop}"
        assert case.run(weights, data, by_runner, stop, "--seed", SEED) == losses[:stop]
        with Session(case.artifact) as session:
            session.load(by_runner)
            assert case.train(session, STEPS) == losses[stop:]
            same(session.params(), final)


def test_a_training_of_varying_sizes_goes_on(tmp_path: Path) -> None:
    sizes = Range("batch", 1, 4, {"x": 0, "labels": 0}, (2, 4), {"labels": -100})

    def graph(size: int) -> Graph:
        whole = Graph("sized")
        g = Builder(whole)
        x, labels = g.input("x", TensorType(F32, (size, 8))), None
        labels = g.input("labels", TensorType(I64, (size,)))
        seed = g.input("seed", TensorType(I32, ()))
        weight = g.param("weight", np.ones((8, 3), np.float32))
        logits = g.matmul(g.dropout(x, seed, p=0.5, stream=0), weight)
        g.output("loss", g.cross_entropy(logits, labels))
        return whole

    backend = CBackend(load_device("host"))
    training = Training(optimizer=Adam(), micro_batches=2)
    program = compile_variants(graph, sizes, training, target=backend.target())
    artifact = write_artifact(program, backend, tmp_path / "artifact")
    rng = np.random.default_rng(1)
    counts = (4, 1, 2, 3, 4, 2, 1, 3)
    batches = [
        {"x": rng.standard_normal((n, 8)).astype(np.float32), "labels": rng.integers(0, 3, n)}
        for n in counts
    ]
    case = Case(artifact, 2, batches)
    with Session(artifact) as session:
        losses = case.train(session, STEPS)
        final = session.params()
    with Session(artifact) as session:
        case.train(session, 3)
        session.save(tmp_path / "checkpoint")
    with Session(artifact) as session:
        session.load(tmp_path / "checkpoint")
        assert case.train(session, STEPS) == losses[3:]
        same(session.params(), final)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return new_case(tmp_path_factory.mktemp("resume"), Adam(), 1, "full")


def test_a_checkpoint_says_what_it_holds(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    with Session(case.artifact) as session:
        case.train(session, 3)
        session.save(path)
        session.load(case.artifact.weights)
        assert (session.steps, session.updates, session.seed) == (0, 0, 0)
    assert metadata(path) == {
        "pockengine.checkpoint": "1",
        "pockengine.steps": "3",
        "pockengine.updates": "3",
        "pockengine.collected": "0",
        "pockengine.seed": str(SEED),
    }


def test_files_without_progress_begin_at_the_first_step(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    with Session(case.artifact) as session:
        case.train(session, 3)
        session.save(path)
        save_file(load_file(path), path, metadata={"format": "pt", "author": "somebody" * 99})
        session.load(path)
        assert session.steps == 0


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("checkpoint", "2", "version 2; this program reads version 1"),
        ("checkpoint", "one", 'checkpoint is "one", which is no number'),
        ("steps", "-1", "no number of its kind"),
        ("steps", "4294967296", "no number of its kind"),
        ("steps", "1" * 300, "no number of its kind"),
        ("seed", "4294967296", "no number of its kind"),
        ("updates", None, "lacks pockengine.updates"),
    ],
)
def test_damaged_progress_is_refused_by_name(
    case: Case, tmp_path: Path, key: str, value: str | None, words: str
) -> None:
    path = tmp_path / "checkpoint"
    with Session(case.artifact) as session:
        session.save(path)
        texts = metadata(path)
        if value is None:
            del texts[f"pockengine.{key}"]
        else:
            texts[f"pockengine.{key}"] = value
        arrays = load_file(path)
        save_file({name: array + 1 for name, array in arrays.items()}, path, metadata=texts)
        before = session.params()
        with pytest.raises(RuntimeFailure, match=words):
            session.load(path)
        same(session.params(), before)


def metadata(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        texts: dict[str, str] = json.loads(file.read(length))["__metadata__"]
        return texts
