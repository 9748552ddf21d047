"""Our own engine as a worker: timed, counted for a board, and compared with PyTorch."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.compiler.compile import compile_program
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.devices.schema import load_device
from pockengine.errors import FarmError
from pockengine.farm.bench.run import write_rows
from pockengine.farm.references.instructions import InstructionCount, count_twice
from pockengine.farm.references.job import JobData, write_job
from pockengine.farm.references.torch_reference import load_weights, train
from pockengine.farm.references.worker import open_own_worker
from pockengine.frontends.torch.model import from_torch
from pockengine.models.registry import parse_model
from pockengine.tests.farm.references.jobs import random_job, relative_error

MODEL, SHAPE, MOMENTUM = "cnn-8", (4, 1, 8, 8), 0.9


def make_job(folder: Path) -> JobData:
    torch.manual_seed(0)
    weights = {k: v.numpy().copy() for k, v in parse_model(MODEL).build().state_dict().items()}
    data = random_job(weights, SHAPE, model=MODEL, learning_rate=0.01, momentum=MOMENTUM)
    write_job(folder, data)
    return data


def compile_job(
    data: JobData, folder: Path, device: str = "host", scheme: str = "full"
) -> Artifact:
    module = parse_model(MODEL).build().train()
    load_weights(module, data.weights)
    graph = from_torch(module, (torch.tensor(data.images[0]),), loss="cross_entropy")
    backend = CBackend(load_device(device))
    training = Training(scheme, Sgd(momentum=MOMENTUM))
    program = compile_program(graph, training, target=backend.target())
    return write_artifact(program, backend, folder)


def test_own_engine_matches_pytorch(tmp_path: Path) -> None:
    data = make_job(tmp_path / "job")
    artifact = compile_job(data, tmp_path / "artifact")
    losses, tensors = train(parse_model(MODEL).build(), data)

    with open_own_worker(artifact.folder, tmp_path / "job", threads=1) as worker:
        before = worker.predict()
        training = worker.train()
        times = worker.step(3)
        peak = worker.peak_rss()

    assert before.shape == (4, 10)
    assert training.losses == pytest.approx(losses, rel=1e-4)
    shared = tensors.keys() & training.tensors.keys()
    assert {name for name in tensors if not name.endswith("batches_tracked")} <= shared
    assert all(relative_error(training.tensors[name], tensors[name]) < 1e-3 for name in shared)
    assert np.isfinite(times).all()
    assert peak > 1e6


def test_error_names_a_missing_artifact(tmp_path: Path) -> None:
    make_job(tmp_path / "job")

    with pytest.raises(FarmError, match="nothing-here"):
        open_own_worker(tmp_path / "nothing-here", tmp_path / "job", threads=1)


def count_steps(artifact: Artifact, data: JobData, folder: Path, steps: int) -> InstructionCount:
    rows = folder / "rows.safetensors"
    write_rows(artifact, data, rows)
    files = ["--weights", str(artifact.weights), "--data", str(rows)]
    settings = ["--steps", str(steps), "--lr", "0.01", "--threads", "1"]
    command = [str(artifact.executable), "train", *files, *settings]
    return count_twice(command, marks=steps)


def test_board_binary_executes_the_same_instructions_in_every_step_and_run(tmp_path: Path) -> None:
    data = make_job(tmp_path / "job")
    full = count_steps(compile_job(data, tmp_path / "full", "rpi4"), data, tmp_path, steps=3)
    biases = compile_job(data, tmp_path / "biases", "rpi4", "bias-only")
    frozen = count_steps(biases, data, tmp_path, steps=3)

    assert len(set(full.regions)) == 1
    assert 0 < frozen.regions[0] < full.regions[0]
