"""Small programs and data for the tests of training from data."""

from pathlib import Path

import numpy as np

import pockengine
from pockengine.backends.training.history import History
from pockengine.compiler.ir import F32, I32, I64, Builder, Graph, TensorType
from pockengine.compiler.optim import Optimizer

CLASSES, FEATURES, BATCH = 3, 8, 4


def data(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows whose label is the index of the largest of the first three features."""
    x = np.random.default_rng(seed).standard_normal((rows, FEATURES)).astype(np.float32)
    return {"x": x, "labels": x[:, :CLASSES].argmax(axis=1)}


def graph() -> Graph:
    """Two layers with dropout between them, and a running mean; batches of 4 rows."""
    rng = np.random.default_rng(3)
    net = Graph("dropping")
    g = Builder(net)
    x = g.input("x", TensorType(F32, (BATCH, FEATURES)))
    labels = g.input("labels", TensorType(I64, (BATCH,)))
    seed = g.input("seed", TensorType(I32, ()))
    first = g.param("first", rng.standard_normal((FEATURES, 16)).astype(np.float32) / 2)
    second = g.param("second", rng.standard_normal((16, CLASSES)).astype(np.float32) / 2)
    y = g.relu(g.matmul(x, first))
    running = g.param("running", np.zeros(16, np.float32), trainable=False)
    g.emit("ema_update", running, g.reduce_mean(y, axes=(0,), keepdims=False), momentum=0.1)
    logits = g.matmul(g.dropout(y, seed, p=0.5, stream=0), second)
    g.output("loss", g.cross_entropy(logits, labels))
    g.output("logits", logits)
    return net


def compiled(
    device: Path | str = "host", optimizer: Optimizer | None = None, micro_batches: int = 1
) -> pockengine.Compiled:
    """Compile the graph for this machine."""
    return pockengine.compile(
        graph(),
        (),
        optimizer=optimizer or pockengine.Adam(),
        micro_batches=micro_batches,
        device=device,
    )


def figures(history: History) -> list[tuple[int, int, dict[str, float]]]:
    """Return the epochs of a history without their times."""
    return [
        (
            epoch.number,
            epoch.step,
            {name: value for name, value in epoch.figures.items() if name != "seconds"},
        )
        for epoch in history.epochs
    ]


def accuracy(prediction: np.ndarray, target: np.ndarray) -> float:
    """Return the fraction of correctly classified rows."""
    return float((prediction.argmax(axis=1) == target).mean())
