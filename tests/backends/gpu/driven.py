"""Trainings on a GPU's driver, in sessions and with the runner, for the tests of each driver."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pockengine.backends.session import Session
from pockengine.compiled import Compiled
from pockengine.compiler.ir import Graph
from pockengine.tests.backends.inputs import draw

STEPS, RATE = 10, 0.01


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
