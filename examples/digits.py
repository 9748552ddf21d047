"""Learn new digits on the board: accuracy and cost of full, bias-only and sparse training.

A small CNN is pretrained in PyTorch on the digits 0 to 4 of scikit-learn's bundled set. It then
gets a new head and learns 5 to 9 on the board, using only the compiled program. Training and test
pictures are separate; accuracy is always that of the test pictures, computed on the board.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file, save_file
from sklearn.datasets import load_digits
from torch import nn

from pockengine.api import compile
from pockengine.compiled import Compiled
from pockengine.compiler.optim import Sgd
from pockengine.devices import known_devices
from pockengine.errors import PockEngineError
from pockengine.farm.boards.board import board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.progress import step
from pockengine.farm.transports.transport import Transport
from pockengine.models.cnn import SmallCNN

BATCH = 16
NEW = 5
"""Digits below this are known from pretraining; the others are new."""
SCHEMES = ("full", "bias-only", str(Path(__file__).parent / "sparse.toml"))
TEST_ROWS = 12 * BATCH


@dataclass(frozen=True)
class Digits:
    """Pictures [N, 1, 8, 8] f32 and labels [N] i64, starting at 0."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class SchemeResult:
    """Result of one scheme: test accuracies, final loss, and planned bytes."""

    scheme: str
    trained: int
    before: float
    after: float
    loss: float
    arena_bytes: int
    inference_bytes: int


def split_digits(new: bool, seed: int = 0) -> tuple[Digits, Digits]:
    """Training and test pictures of the known or the new digits."""
    data = load_digits()
    chosen = np.flatnonzero((data.target >= NEW) == new)
    np.random.default_rng(seed).shuffle(chosen)
    images = (data.images[chosen, None] / 8 - 1).astype(np.float32)
    labels = (data.target[chosen] % NEW).astype(np.int64)
    test = Digits(images[:TEST_ROWS], labels[:TEST_ROWS])
    return Digits(images[TEST_ROWS:], labels[TEST_ROWS:]), test


def pretrain(epochs: int = 8) -> SmallCNN:
    """Train on the known digits in PyTorch, then put a new head on."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # such small pictures do not need a second thread
    model = SmallCNN(classes=NEW)
    train, _ = split_digits(new=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = torch.from_numpy(train.images), torch.from_numpy(train.labels)
    for _ in range(epochs):
        for rows, expected in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(rows), expected).backward()
            optimizer.step()
    model.head.reset_parameters()
    return model


def accuracy(board: Transport, compiled: Compiled, weights: Path, test: Digits) -> float:
    """Predict the test pictures on the board and return the fraction of correct ones."""
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "test.safetensors"
        save_file({"x": test.images}, data)
        args = ("predict", "--weights", "weights", "--data", "data", "--output", "logits")
        inputs = {"weights": weights, "data": data}
        job = Job(compiled.artifact.executable, args, inputs, ("logits",))
        result = run_job(board, job, Path(place) / "out")
        logits = load_file(result.outputs["logits"])["output"]
    return float((logits.argmax(-1) == test.labels).mean())


def tune(board: Transport, model: SmallCNN, device: str, scheme: str, steps: int) -> SchemeResult:
    """Compile for one scheme, train on the board, and measure before and after."""
    train, test = split_digits(new=True)
    compiled = compile(
        model,
        (torch.from_numpy(train.images[:BATCH]),),
        loss="cross_entropy",
        optimizer=Sgd(momentum=0.9),
        scheme=scheme,
        device=device,
    )
    artifact = compiled.artifact
    before = accuracy(board, compiled, artifact.weights, test)
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "train.safetensors"
        save_file({"x": train.images, "target": train.labels}, data)
        args = ["train", "--weights", "weights", "--data", "data", "--steps", str(steps)]
        args += ["--shuffle"]
        inputs = {"weights": artifact.weights, "data": data}
        job = Job(
            artifact.executable,
            (*args, "--lr", "0.05", "--save", "tuned", "--save-whole"),
            inputs,
            ("tuned",),
        )
        result = run_job(board, job, Path(place))
        after = accuracy(board, compiled, result.outputs["tuned"], test)
        lines = [json.loads(line) for line in result.run.stdout.splitlines()]
    trained = sum(spec.type.size for spec in artifact.params.values() if spec.trained)
    losses = [line["loss"] for line in lines if "loss" in line]
    train_bytes, inference = (artifact.entries[n].arena_bytes for n in ("train", "predict"))
    name = Path(scheme).stem
    return SchemeResult(name, trained, before, after, losses[-1], train_bytes, inference)


def show(outcomes: Sequence[SchemeResult], board: str, steps: int) -> Table:
    """Format the results as a table."""
    title = (
        f"Accuracy on the digits {NEW} to 9, before and after {steps} steps of {BATCH} on {board}"
    )
    table = Table(title=title)
    for heading in ("scheme", "trained", "before", "after", "last loss"):
        table.add_column(heading, justify="left" if heading == "scheme" else "right")
    table.add_column("arena", justify="right")
    table.add_column("over inference", justify="right")
    for o in outcomes:
        table.add_row(
            o.scheme,
            f"{o.trained:,}",
            f"{o.before:.1%}",
            f"{o.after:.1%}",
            f"{o.loss:.3f}",
            f"{o.arena_bytes / 1024:.0f} KiB",
            f"{(o.arena_bytes - o.inference_bytes) / 1024:.0f} KiB",
        )
    return table


@click.command()
@click.option("--device", default="rpi4", type=click.Choice(known_devices()), show_default=True)
@click.option("--steps", default=120, show_default=True, help="Training steps of each scheme.")
def main(device: str, steps: int) -> None:
    """Fine-tune a small CNN to new digits on a board, by three schemes."""
    try:
        board = board_for(device, load_boards())
        with step("pretraining on the known digits in PyTorch"):
            model = pretrain()
        outcomes = []
        with connect(board) as transport:
            for scheme in SCHEMES:
                with step(f"{Path(scheme).stem}: compile, train and test on {board.name}"):
                    outcomes.append(tune(transport, model, device, scheme, steps))
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error
    Console().print(show(outcomes, board.name, steps))


if __name__ == "__main__":
    main()
