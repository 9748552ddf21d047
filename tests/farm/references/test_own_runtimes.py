"""Our step in each runtime: a worker compiles it, and training equals PyTorch's."""

from pathlib import Path

import pytest
import torch

from pockengine.compiler.ir import Graph
from pockengine.errors import FarmError
from pockengine.extras import pip_command
from pockengine.farm.references import worker as worker_module
from pockengine.farm.references.job import JobData, write_job
from pockengine.farm.references.own_compile import Request, compile_request, write_request
from pockengine.farm.references.torch_reference import load_weights, train
from pockengine.farm.references.worker import (
    compile_by_worker,
    open_own_worker,
    why_runtime_missing,
)
from pockengine.frontends.torch.model import from_torch
from pockengine.models.registry import parse_model
from pockengine.tests.farm.references.jobs import random_job, relative_error

MODEL, SHAPE, MOMENTUM = "cnn-8", (4, 1, 8, 8), 0.9


def make_job(folder: Path) -> tuple[JobData, Graph]:
    torch.manual_seed(0)
    module = parse_model(MODEL).build().train()
    weights = {name: x.numpy().copy() for name, x in module.state_dict().items()}
    data = random_job(weights, SHAPE, model=MODEL, learning_rate=0.01, momentum=MOMENTUM)
    write_job(folder, data)
    graph = from_torch(module, (torch.tensor(data.images[0]),), loss="cross_entropy")
    load_weights(module, data.weights)
    return data, graph


def request_of(backend: str, artifact: Path, scheme: str = "full") -> Request:
    return Request(backend, "host", scheme, MOMENTUM, 0.0, str(artifact))


@pytest.mark.parametrize("backend", ["c", "onnx", "tflite", "tvm"])
def test_worker_training_matches_pytorch(backend: str, tmp_path: Path) -> None:
    reason = why_runtime_missing(backend)
    if reason:
        pytest.skip(reason)
    data, graph = make_job(tmp_path / "job")
    write_request(tmp_path / "request", graph, request_of(backend, tmp_path / "artifact"))
    compile_by_worker(tmp_path / "request", backend)
    with open_own_worker(tmp_path / "artifact", tmp_path / "job", 1, backend) as worker:
        training = worker.train()
        version, file_bytes = worker.version, worker.file_bytes
    losses, tensors = train(parse_model(MODEL).build(), data)

    assert training.losses == pytest.approx(losses, rel=1e-4)
    shared = tensors.keys() & training.tensors.keys()
    assert {name for name in tensors if not name.endswith("batches_tracked")} <= shared
    assert all(relative_error(training.tensors[name], tensors[name]) < 1e-3 for name in shared)
    assert ("," in version) == (backend != "c")
    assert file_bytes > 0


def test_compile_errors_of_a_worker_are_reported(tmp_path: Path) -> None:
    _, graph = make_job(tmp_path / "job")
    write_request(tmp_path / "request", graph, request_of("c", tmp_path / "artifact", "nonsense"))

    with pytest.raises(FarmError, match="SchemeError: unknown scheme 'nonsense'"):
        compile_by_worker(tmp_path / "request", "c")


def test_damaged_requests_are_refused(tmp_path: Path) -> None:
    _, graph = make_job(tmp_path / "job")
    write_request(tmp_path / "request", graph, request_of("c", tmp_path / "artifact"))
    (tmp_path / "request" / "request.json").write_text("{}")

    with pytest.raises(FarmError, match="cannot be read"):
        compile_request(tmp_path / "request")


def test_error_for_a_missing_runtime_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pockengine.extras.find_spec", lambda name: None)
    monkeypatch.setattr(worker_module, "_binary", lambda module: Path("nowhere"))

    assert why_runtime_missing("c") is None
    reason = why_runtime_missing("tvm")
    assert reason is not None
    assert pip_command("tvm") in reason
    with pytest.raises(FarmError, match="unknown runtime 'tpu'; use one of c, onnx, tflite, tvm"):
        why_runtime_missing("tpu")
