"""A small training with dropout, in a session or the runner, that can stop at any step."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.rate_schedule import RateSchedule
from pockengine.backends.session import Session
from pockengine.compiler.ir import F32, I32, I64, Builder, Graph, TensorType
from pockengine.compiler.optim import Optimizer
from pockengine.compiler.options import Training
from pockengine.compiler.sparse.lora import lora
from pockengine.devices.schema import load_device
from pockengine.tests.backends.c.programs import compile_for

STEPS, SEED, RATE = 8, 7, 0.01
SCHEDULE = RateSchedule("cosine", RATE, steps=STEPS, warmup=2)
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
        """Take steps up to this number; each group of micro-batches ends with an update."""
        losses = []
        while session.steps < until:
            inputs = self.batches[session.steps % len(self.batches)]
            update = session.updates + 1 if self.micro_batches > 1 else session.steps + 1
            losses.append(float(session.train_step(inputs, SCHEDULE(update), SEED)["loss"]))
        return losses

    def run(self, weights: Path, data: Path, saved: Path, steps: int, *more: object) -> list[float]:
        """Train with the runner; return the losses."""
        command = [str(self.artifact.executable), "train", "--weights", str(weights)]
        command += ["--data", str(data), "--steps", str(steps), "--lr", str(RATE)]
        command += ["--save", str(saved), "--save-whole"]
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
