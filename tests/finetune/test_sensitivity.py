"""Sensitivity: complete tables, even if processes die, and no access to the test set."""

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import typing
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from pockengine.errors import CompileError, FinetuneError
from pockengine.finetune import contributions, rates, sensitivity, task
from pockengine.finetune.contributions import Key, read_table
from pockengine.finetune.executor import open_executor
from pockengine.finetune.sensitivity import SensitivityPlan, TrialProgress, measure
from pockengine.finetune.task import Examples, Task, Tuning
from pockengine.finetune.trial import TrialOutcome
from pockengine.tests.finetune.run_sensitivity import ITEMS, RECIPE, SEEDS, TRIALS
from pockengine.tests.finetune.tiny import tiny_subject, tiny_tuning

SUBJECT = tiny_subject()
TUNING = tiny_tuning(200)
PLAN = SensitivityPlan(SUBJECT, TUNING, ITEMS, RECIPE, SEEDS)


def plain(path: Path) -> dict[Key, TrialOutcome]:
    """Return a table's trials without their times."""
    return {key: replace(outcome, seconds=0.0) for key, outcome in read_table(path)[1].items()}


def start(path: Path, stop_after: int) -> "subprocess.Popen[str]":
    command = (sys.executable, "-m", "pockengine.tests.finetune.run_sensitivity")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = (*command, str(path), "processes", str(stop_after))
    return subprocess.Popen(arguments, env=variables, stdout=subprocess.PIPE, text=True)


@pytest.fixture(name="whole", scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measure a table without interruption, on a thread."""
    path = tmp_path_factory.mktemp("whole") / "table.jsonl"
    with ThreadPoolExecutor(1) as executor:
        measure(PLAN, path, executor)
    return path


def test_an_interrupted_run_ends_its_busy_workers() -> None:
    started: list[Future[None]] = []

    def run() -> None:
        with open_executor(workers=1) as executor:
            started.append(executor.submit(time.sleep, 600))
            while not started[0].running():
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert isinstance(started[0].exception(), BrokenExecutor)


def test_workers_killed_after_cancelled_calls_leave_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr("threading.excepthook", failures.append)
    kill, dead = BaseProcess.kill, threading.Event()

    def slow_kill(worker: BaseProcess) -> None:
        """Kill, and give the pool's thread the time to find the worker dead."""
        kill(worker)
        dead.wait(0.5)

    monkeypatch.setattr(BaseProcess, "kill", slow_kill)

    def run() -> None:
        with open_executor(workers=1) as executor:
            calls = [executor.submit(time.sleep, 600) for _ in range(4)]
            while not calls[1].running():  # the queue to the worker is full
                time.sleep(0.01)
            for call in calls[2:]:
                call.cancel()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert not failures


def test_killed_runs_resume(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    first = start(path, stop_after=5)
    assert first.stdout is not None
    while not first.stdout.readline().startswith("5 "):
        assert first.poll() is None
    workers = children(first.pid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = read_table(path)[1]
    path.write_bytes(path.read_bytes() + b'{"item": null, "see')  # as if killed while writing
    second = start(path, stop_after=0)
    lines = second.communicate(timeout=120)[0].splitlines()

    assert second.returncode == 0
    assert len(before) == 5
    assert lines[0] == f"5 {TRIALS} started"
    assert len(lines) == TRIALS - 5 + 1  # exactly one line per missing trial
    assert plain(path) == plain(whole)
    assert before.items() <= read_table(path)[1].items()
    assert ended(workers)


def children(pid: int) -> list[int]:
    """Return the child processes, recursively."""
    task = Path(f"/proc/{pid}/task")
    direct = [int(child) for file in task.glob("*/children") for child in file.read_text().split()]
    return [*direct, *(below for child in direct for below in children(child))]


def ended(pids: list[int]) -> bool:
    """Return whether the processes end within a few seconds."""
    assert pids
    for _ in range(100):
        if not any(runs(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def runs(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_complete_tables_run_no_trial(whole: Path) -> None:
    seen: list[TrialProgress] = []
    before = whole.read_bytes()
    found = measure(PLAN, whole, Refusing(), seen.append)

    assert seen == [TrialProgress(TRIALS, TRIALS, None, "started")]
    assert whole.read_bytes() == before
    stored = whole.with_name(f"{whole.name}.work") / "artifacts"
    assert stored.exists()
    assert not [path for path in stored.iterdir() if path.is_dir()]  # deleted after the last seed
    assert list(found.gains) == sorted(ITEMS)
    assert all(gain.n == len(SEEDS) for gain in found.gains.values())
    assert found.gains[ITEMS[2]].mean > 0  # more training gains


class Refusing(Executor):
    """An executor that fails at the first job; a complete table must not use it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        raise CompileError("nothing was to be run")


def test_changed_settings_are_refused(whole: Path) -> None:
    changes: list[tuple[str, dict[str, Any]]] = [
        ("seeds", {"seeds": (0, 1)}),
        ("recipe", {"recipe": replace(RECIPE, epochs=3)}),
        ("graph", {"subject": tiny_subject(seed=1)}),
        ("train", {"tuning": tiny_tuning(240)}),
    ]
    for name, change in changes:
        with pytest.raises(FinetuneError, match=f"{name}: .* there, .* now"):
            measure(replace(PLAN, **change), whole, Refusing())


class Failing(ThreadPoolExecutor):
    """An executor whose third job fails."""

    jobs = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        self.jobs += 1
        return super().submit(self.fail if self.jobs == 3 else fn, *args, **kwargs)

    @staticmethod
    def fail(*_: Any) -> None:
        raise CompileError("the third job fails")


def test_failed_trials_end_the_run_and_keep_others(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    with Failing(1) as executor, pytest.raises(CompileError, match="the third job fails"):
        measure(PLAN, path, executor)

    complete = plain(path)
    assert len(complete) == 2
    assert complete.items() <= plain(whole).items()


def test_invalid_data_is_refused_before_a_table_is_written(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    wrong = replace(TUNING.train, labels=TUNING.train.labels + 5)
    with pytest.raises(FinetuneError, match="labels from 5"):
        measure(replace(PLAN, tuning=Tuning(wrong, TUNING.validation)), path, Refusing())

    assert not path.exists()


def mentioned(annotation: Any) -> set[Any]:
    """Return the types within an annotation."""
    parts = typing.get_args(annotation)
    return {annotation}.union(*(mentioned(part) for part in parts if not isinstance(part, list)))


def test_selection_has_no_access_to_the_test_set() -> None:
    assert typing.get_type_hints(Tuning) == {"train": Examples, "validation": Examples}
    for module in (contributions, rates, sensitivity):
        assert task.Task not in vars(module).values()
        for function in vars(module).values():
            if inspect.isfunction(function):
                seen = types_of(function)
                assert Task not in seen, f"{function.__name__} takes a task"


def types_of(function: Callable[..., Any]) -> set[Any]:
    hints = typing.get_type_hints(function).values()
    return set().union(*(mentioned(hint) for hint in hints))
