"""Sensitivity on a real Dask cluster of two workers, one of which is killed midway."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from distributed import Client

from pockengine.errors import FinetuneError
from pockengine.finetune.contributions import Key, read_table
from pockengine.finetune.executor import open_executor
from pockengine.finetune.sensitivity import SensitivityPlan, TrialProgress, measure
from pockengine.finetune.trial import TrialOutcome
from pockengine.tests.finetune.run_sensitivity import ITEMS, RECIPE, SEEDS, TRIALS
from pockengine.tests.finetune.tiny import tiny_subject, tiny_tuning

VICTIM = "victim"
SECONDS = 90


@dataclass(frozen=True)
class Cluster:
    """A scheduler's address and its workers' processes by name."""

    address: str
    workers: "dict[str, subprocess.Popen[bytes]]"


@pytest.fixture(name="cluster")
def two_workers(tmp_path: Path) -> Iterator[Cluster]:
    """Start a scheduler and two single-threaded workers, each a separate process."""
    file = tmp_path / "scheduler.json"
    known = ("--scheduler-file", str(file))
    place = ("--host", "127.0.0.1", "--no-dashboard")
    with ExitStack() as stack:
        stack.enter_context(running("dask_scheduler", *known, *place, "--port", "0"))
        alone = ("--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path))
        workers = {
            name: stack.enter_context(
                running("dask_worker", *known, *place, *alone, "--name", name)
            )
            for name in (VICTIM, "other")
        }
        with Client(scheduler_file=str(file), timeout=SECONDS) as client:
            client.wait_for_workers(2, timeout=SECONDS)
            address = client.scheduler.address
        yield Cluster(address, workers)


@contextmanager
def running(command: str, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Run one of Dask's programs until the context ends."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    line = (sys.executable, "-m", f"distributed.cli.{command}", *arguments)
    with subprocess.Popen(line, env=variables, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def plain(path: Path) -> dict[Key, TrialOutcome]:
    return {key: replace(outcome, seconds=0.0) for key, outcome in read_table(path)[1].items()}


def victim_tasks(address: str) -> int:
    """Return the number of the victim's running and queued trials."""
    with Client(address, timeout=SECONDS, set_as_default=False) as client:
        named = {row["name"]: place for place, row in client.scheduler_info()["workers"].items()}
        return len(client.processing()[named[VICTIM]])


def test_killed_workers_lose_and_repeat_no_trial(cluster: Cluster, tmp_path: Path) -> None:
    plan = SensitivityPlan(tiny_subject(), tiny_tuning(200), ITEMS, RECIPE, SEEDS)
    seen: list[TrialProgress] = []
    had: list[int] = []

    def tell(progress: TrialProgress) -> None:
        seen.append(progress)
        if progress.done == 4:
            had.append(victim_tasks(cluster.address))
            cluster.workers[VICTIM].send_signal(signal.SIGKILL)

    with open_executor(cluster.address) as executor:
        found = measure(plan, tmp_path / "dask.jsonl", executor, tell)
    with ThreadPoolExecutor(1) as alone:
        measure(plan, tmp_path / "alone.jsonl", alone)

    assert had[0] > 0
    assert cluster.workers[VICTIM].wait(SECONDS) == -signal.SIGKILL
    assert [progress.done for progress in seen] == list(range(TRIALS + 1))
    assert set(found.gains) == set(ITEMS)
    assert plain(tmp_path / "dask.jsonl") == plain(tmp_path / "alone.jsonl")


def test_missing_cluster_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pockengine.finetune.executor._CONNECT_SECONDS", 1)
    start = time.monotonic()
    with (
        pytest.raises(FinetuneError, match=r"no Dask scheduler answers at tcp://127\.0"),
        open_executor("tcp://127.0.0.1:1"),
    ):
        pass

    assert time.monotonic() - start < SECONDS


@pytest.mark.parametrize(
    ("scheduler", "workers", "message"),
    [("dask", None, "unknown scheduler 'dask'"), ("tcp://a:1", 2, "has its own workers")],
)
def test_errors_name_invalid_schedulers(scheduler: str, workers: int | None, message: str) -> None:
    with pytest.raises(FinetuneError, match=message), open_executor(scheduler, workers):
        pass


def test_error_names_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(FinetuneError, match="pip install distributed"),
        open_executor("tcp://127.0.0.1:1"),
    ):
        pass


def test_silent_servers_are_reported_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pockengine.finetune.executor._CONNECT_SECONDS", 1)
    start = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with (
            pytest.raises(FinetuneError, match=f"{address}: it is silent for 1 s; give the addr"),
            open_executor(address),
        ):
            pass

    assert time.monotonic() - start < 10


def test_error_names_a_server_that_is_not_a_scheduler() -> None:
    """Dask reads the reply as sizes: 3 EiB here."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1)

        threading.Thread(target=answer, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with (
            pytest.raises(FinetuneError, match=f"no Dask scheduler answers at {address}: "),
            open_executor(address),
        ):
            pass
