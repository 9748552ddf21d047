"""Trainings on a GPU's driver, in sessions and with the runner, for the tests of each driver."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from pockengine.backends.session import Session
from pockengine.compiled import Compiled
from pockengine.compiler.ir import F32, I32, Builder, Graph, TensorType
from pockengine.compiler.optim import Adam, Sgd
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.trainings import TRAININGS
from pockengine.tests.compiler.small_nets import residual_net

STEPS, RATE = 10, 0.01


def _perceptron() -> Graph:
    """Two layers over rows of 37, which no tile size divides."""
    rng = np.random.default_rng(0)
    g = Builder(Graph("perceptron"))
    x, target = g.input("x", TensorType(F32, (5, 37))), g.input("target", TensorType(I32, (5,)))
    w = [
        g.param(f"{name}.weight", rng.normal(0, 0.2, shape).astype(np.float32))
        for name, shape in (("a", (37, 19)), ("b", (19, 7)))
    ]
    b = g.param("a.bias", np.zeros(19, np.float32))
    logits = g.matmul(g.relu(g.add(g.matmul(x, w[0]), b)), w[1])
    g.output("loss", g.cross_entropy(logits, target))
    return g.graph


NETS: dict[str, tuple[Graph, dict[str, Any]]] = {
    "perceptron": (_perceptron(), {"optimizer": Adam(eps=1e-2)}),
    "convolutions": (residual_net(), {"optimizer": Sgd(momentum=0.9)}),
    "micro-batches": (residual_net(), {"micro_batches": 2, "scheme": "head-only"}),
    "transformer": TRAININGS["bert-lora"],
    "sparse": TRAININGS["mobile-sparse"],
}


def trained(session: Session, graph: Graph) -> dict[str, np.ndarray]:
    """Train on random batches; return the losses and the params."""
    losses = []
    for number in range(STEPS):
        losses.append(session.train_step(draw(graph, number), RATE)["loss"])
    return {"losses": np.array(losses), **session.params()}


def resumed(compiled: Compiled, folder: Path) -> tuple[dict[str, np.ndarray], ...]:
    """Return the params of a training, and of one resumed from a checkpoint of it."""
    graph = compiled.graph
    with compiled.session() as session, compiled.session() as other:
        for number in range(4):
            session.train_step(draw(graph, number), RATE)
            if number == 1:
                session.save(folder / "saved")
        other.load(folder / "saved")
        for number in (2, 3):
            other.train_step(draw(graph, number), RATE)
        return session.params(), other.params()


def training_arguments(compiled: Compiled, folder: Path) -> list[str]:
    """Write a file of random rows; return the runner's arguments for training on it."""
    batches = [draw(compiled.graph, number) for number in range(STEPS)]
    rows = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
    save_file(rows, folder / "rows")
    files = ["--weights", str(compiled.artifact.weights), "--data", str(folder / "rows")]
    return ["train", *files, "--steps", str(STEPS), "--lr", repr(RATE)]


def run_training(
    compiled: Compiled, folder: Path, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Train with the runner, which loads the driver's library from a folder if it has one.

    `settings` are variables of the environment.
    """
    arguments = [*training_arguments(compiled, folder), "--save", str(folder / "saved")]
    command = [str(compiled.artifact.executable), *arguments]
    folders = ":".join([str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    environment = {**os.environ, "LD_LIBRARY_PATH": folders, **settings}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
