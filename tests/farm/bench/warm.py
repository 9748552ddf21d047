"""Warm workers: forks of a process that has imported the frameworks.

PyTorch, transformers and PEFT take eight seconds of CPU time to import, and a bench test starts a
dozen workers. The first worker starts cold, as in the bench.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from multiprocessing.connection import Connection
from typing import IO, Any, cast

import pytest

from pockengine.farm.references import worker
from pockengine.farm.references.worker import Worker

FOLDER = "pockengine.farm.references"
_started = count()


class Forked:
    """A fork that runs a module as a worker, with the interface of `Popen` that `Worker` uses."""

    def __init__(self, module: str, log: IO[bytes]) -> None:
        """Start the process; it replies on pipes, and its stderr goes to `log`."""
        context = multiprocessing.get_context("forkserver")
        requests, ask = context.Pipe(duplex=False)
        answers, answer = context.Pipe(duplex=False)
        printed = Connection(os.dup(log.fileno()), readable=False)
        self._process = context.Process(target=_serve, args=(module, requests, answer, printed))
        self._process.start()
        for end in (requests, answer, printed):
            end.close()
        self.stdin: IO[bytes] = os.fdopen(os.dup(ask.fileno()), "wb")
        self.stdout: IO[bytes] = os.fdopen(os.dup(answers.fileno()), "rb")
        ask.close()
        answers.close()

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process to end; raise TimeoutExpired after `timeout` seconds."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(FOLDER, timeout or 0.0)
        return self._process.exitcode

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()


def _serve(module: str, requests: Connection, answer: Connection, printed: Connection) -> None:
    for number, end in enumerate((requests, answer, printed)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    runpy.run_module(module, run_name="__main__")


@contextmanager
def warm_workers(module: str, *imported: str) -> Iterator[None]:
    """Start all workers of a module of `farm.references` warm, except the first one of a process.

    `imported` names further modules to preload, the same in each test of a process.
    """
    name = f"{FOLDER}.{module}"

    class WarmWorker(Worker):
        def _started(
            self, command: Sequence[str], environment: Mapping[str, str] | None
        ) -> "subprocess.Popen[bytes]":
            if not command[-1].endswith(module) or next(_started) == 0:
                return super()._started(command, environment)
            return cast("subprocess.Popen[Any]", Forked(name, self._log))

    multiprocessing.get_context("forkserver").set_forkserver_preload([name, *imported])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(worker, "Worker", WarmWorker)
        yield
