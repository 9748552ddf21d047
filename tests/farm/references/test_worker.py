"""The protocol between the bench and its workers, and interleaved timing, without a framework."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pockengine.errors import FarmError
from pockengine.farm.references.engines import (
    ENGINES,
    KEEP_MEMORY,
    LM_OWN,
    MALLOC,
    TORCH,
    Engine,
    find_engine,
    find_lm_engine,
)
from pockengine.farm.references.job import JobData, TrainingJob, read_job, write_job
from pockengine.farm.references.timing import Timing, interleave
from pockengine.farm.references.worker import Refused, Worker, open_worker, why_missing
from pockengine.tests.farm.references.jobs import random_job

TOY = Path(__file__).with_name("toy_worker.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = random_job({"counter": np.zeros(1, np.float32)}, (2, 3, 4, 4), steps=3)
    write_job(tmp_path, data)
    return tmp_path


@pytest.fixture
def worker() -> Iterator[Worker]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with Worker([sys.executable, str(TOY)], environment, timeout=120) as toy:
        yield toy


def test_onnx_runtime_without_training_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.delitem(sys.modules, "onnxruntime.training", raising=False)
    monkeypatch.setattr("pockengine.farm.references.worker._binary", Path)
    assert why_missing(find_engine("ort-training")) == "onnxruntime.training is not installed"
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "onnxruntime")
    assert why_missing(find_engine("ort-training")) == "onnxruntime.training is not installed"


def test_an_interrupted_program_kills_its_busy_worker(folder: Path, worker: Worker) -> None:
    worker.prepare(folder, "hangs", 1)
    process = worker._process
    assert process.stdin is not None
    process.stdin.write(b'{"do": "step", "count": 1}\n')
    process.stdin.flush()
    with pytest.raises(KeyboardInterrupt), worker:
        raise KeyboardInterrupt
    assert process.returncode == -signal.SIGKILL


def test_jobs_round_trip(tmp_path: Path) -> None:
    weights = {"w": np.arange(6, dtype=np.float32).reshape(2, 3).T, "n": np.array(3)}
    data = random_job(weights, (2, 3, 4, 4), trainable={"w": (0, 1), "b": None}, momentum=0.9)
    write_job(tmp_path, data)

    found = read_job(tmp_path)

    assert found.job == data.job
    assert found.weights["n"] == 3
    np.testing.assert_array_equal(found.weights["w"], weights["w"])
    np.testing.assert_array_equal(found.images, data.images)
    np.testing.assert_array_equal(found.labels, data.labels)


def test_training_starts_from_the_job_and_returns_losses_and_tensors(
    worker: Worker, folder: Path
) -> None:
    worker.prepare(folder, "fine", threads=1)
    training = worker.train()

    assert worker.version == "toy 1"
    assert training.losses == [1.0, 2.0, 3.0]
    assert training.tensors["counter"].tolist() == [3.0]


def test_prepare_resets_the_worker(worker: Worker, folder: Path) -> None:
    worker.prepare(folder, "fine", threads=1)
    worker.train()
    worker.prepare(folder, "fine", threads=1)

    assert worker.predict().tolist() == [[0.0, 0.0]]
    assert worker.train().losses == [1.0, 2.0, 3.0]


def test_steps_are_timed_one_by_one(worker: Worker, folder: Path) -> None:
    worker.prepare(folder, "fine", threads=1)
    times = worker.step(4)

    assert len(times) == 4
    assert all(0 < ms < 60_000 for ms in times)
    assert worker.predict().tolist() == [[4.0, 4.0]]


def test_peak_memory_is_of_the_worker_process(worker: Worker) -> None:
    assert 1e6 < worker.peak_rss() < 1e9


def test_errors_are_reported_and_the_worker_continues(worker: Worker, folder: Path) -> None:
    with pytest.raises(Refused, match="asked to prepare: FarmError: toys cannot do that") as caught:
        worker.prepare(folder, "refuses", threads=1)
    assert caught.value.reason == "toys cannot do that"
    with pytest.raises(FarmError, match="nothing is prepared"):
        worker.step(1)

    worker.prepare(folder, "fine", threads=1)
    assert worker.train().losses[0] == 1.0


def test_error_names_a_damaged_job(worker: Worker, folder: Path) -> None:
    (folder / "weights.safetensors").write_bytes(b"short")

    with pytest.raises(FarmError, match=f"the training job in {folder} cannot be read"):
        worker.prepare(folder, "fine", threads=1)


def test_unknown_request_is_an_error(worker: Worker) -> None:
    with pytest.raises(FarmError, match="unknown request 'dance'"):
        worker.ask(do="dance")


def test_error_of_a_dead_worker_has_its_last_output(worker: Worker, folder: Path) -> None:
    worker.prepare(folder, "dies", threads=1)

    with pytest.raises(FarmError, match=r"ended with status 7: .*what it printed last"):
        worker.step(1)
    with pytest.raises(FarmError, match="ended with status 7"):
        worker.step(1)


def test_silent_workers_are_killed(worker: Worker, folder: Path) -> None:
    worker.prepare(folder, "hangs", threads=1)
    worker.timeout = 0.3

    with pytest.raises(FarmError, match=r"no answer in 0\.3 s; it was ended"):
        worker.step(1)
    worker.close()


def test_programs_that_are_not_workers_are_an_error() -> None:
    with (
        Worker(["/bin/cat"], timeout=120) as cat,
        pytest.raises(FarmError, match="answered something else"),
    ):
        cat.ask(do="peak_rss")  # cat echoes the request: JSON, but no reply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_norm": "sometimes"}, "batch norm 'sometimes' is unknown"),
        ({"trainable": {}}, "must train something"),
    ],
)
def test_invalid_jobs_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(FarmError, match=message):
        TrainingJob(**{"model": "cnn-8", **change})


def test_jobs_with_wrong_shapes_are_refused() -> None:
    images, labels = np.zeros((2, 4, 3, 8, 8), np.float32), np.zeros((2, 4), np.int64)

    with pytest.raises(FarmError, match=r"images must be f32 .* not float64"):
        JobData(TrainingJob("cnn-8"), {}, images.astype(np.float64), labels)
    with pytest.raises(FarmError, match=r"labels must be i64 \[2, 4\]"):
        JobData(TrainingJob("cnn-8"), {}, images, labels[:, :3])


def test_error_for_an_unknown_engine_lists_known_ones(tmp_path: Path) -> None:
    with pytest.raises(FarmError, match=r"unknown reference engine 'mxnet'.*torch-eager"):
        open_worker("mxnet", tmp_path, threads=1)
    assert find_engine("tf-graph") is ENGINES["tf-graph"]


def test_engine_names_derive_from_values() -> None:
    value = Engine(TORCH, "compile", dtype="bf16", channels_last=True, allocator=MALLOC)

    assert value.name == "torch-compile-bf16-cl-malloc"
    assert value.compiled
    assert value.environment == KEEP_MEMORY
    assert find_lm_engine("pockengine-int4") == Engine(LM_OWN, dtype="int4")


class Clock:
    """A stepper with scripted times; it logs its calls."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log, self.count = name, log, 0

    def step(self, count: int) -> list[float]:
        self.log.append(self.name * count)
        self.count += count
        return [float(self.count - count + index) for index in range(count)]


def test_interleaving_alternates_and_drops_warm_up_steps() -> None:
    log: list[str] = []
    timings = interleave({"a": Clock("a", log), "b": Clock("b", log)}, rounds=2, steps=2)

    assert log == ["aaa", "bbb", "aaa", "bbb", "bbb", "aaa"]
    # Steps 0 to 2 are warm-up; 3 and 6 are the first steps of a turn.
    assert timings["a"] == timings["b"] == Timing(median=6.0, min=4.0, max=8.0, n=4)


def test_no_samples_have_no_median() -> None:
    with pytest.raises(ValueError, match="no step"):
        Timing.of([])
