"""Drive a worker process: start it, ask it, time it, end it. The other side is serve.py."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from pockengine.errors import FarmError, MissingPackage
from pockengine.extras import need
from pockengine.farm.references.engines import (
    Engine,
    Framework,
    find_engine,
    find_runtime,
)
from pockengine.farm.references.job import Tensors

REPLY_TIMEOUT = 900.0
QUIT_TIMEOUT = 120.0  # an emulated Python takes long to end, and its count is written last
CHUNK_BYTES = 65536
LM_TIMEOUT = 4 * 3600.0  # fifty steps of a model of a billion parameters take an hour
CPP_COMPILERS = ("g++", "clang++")


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training run: loss and milliseconds of each step, and the final tensors."""

    losses: list[float]
    tensors: Tensors
    ms: list[float] = field(default_factory=list)


class Refused(FarmError):
    """A job that a framework does not support, for a `reason`: not an error of either."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Worker:
    """A running worker process; a context manager that always ends it.

    Every method raises FarmError if the worker reports an error, dies, or gives no answer in
    `timeout` seconds; the message includes the end of its output.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        timeout: float = REPLY_TIMEOUT,
    ) -> None:
        """Start the process; `environment` is all of its environment (None: this one's)."""
        self.name = Path(command[0]).name if len(command) == 1 else " ".join(command[-2:])
        self.timeout = timeout
        self.version, self.file_bytes = "", 0
        self._pending = b""
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as self)
        self._process = self._started(command, environment)

    def prepare(self, folder: Path, engine: str, threads: int) -> None:
        """Load a job folder (see job.py) for an engine; training starts from its weights."""
        reply = self.ask(do="prepare", folder=str(folder), engine=engine, threads=threads)
        self.version = str(reply["version"])
        self.file_bytes = int(reply.get("file_bytes", 0))

    def train(self) -> TrainingResult:
        """Train on every batch of the job once, in order."""
        with tempfile.TemporaryDirectory(prefix="pockengine-reference-") as folder:
            out = Path(folder) / "tensors.safetensors"
            reply = self.ask(do="train", out=str(out))
            losses, times = ([float(x) for x in reply.get(key, ())] for key in ("losses", "ms"))
            return TrainingResult(losses, load_file(out), times)

    def predict(self) -> NDArray[np.generic]:
        """Return the logits [N, classes] of the job's first batch by the weights as they are now.

        Batch norms use their running statistics, also if the job trains with batch statistics.
        """
        with tempfile.TemporaryDirectory(prefix="pockengine-reference-") as folder:
            out = Path(folder) / "logits.safetensors"
            self.ask(do="predict", out=str(out))
            return load_file(out)["logits"]

    def step(self, count: int) -> list[float]:
        """Do `count` steps; return the milliseconds that each took in the worker."""
        return [float(ms) for ms in self.ask(do="step", count=count)["ms"]]

    def marked_steps(self, count: int) -> float:
        """Do `count` steps, each a counted region (emulated aarch64 only); return the last loss."""
        return float(self.ask(do="step", count=count, marked=True)["loss"])

    def peak_rss(self) -> int:
        """Return the process's highest resident memory so far, in bytes."""
        return int(self.ask(do="peak_rss")["bytes"])

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and return its reply; Refused if its framework cannot do that."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        line = self._read_line(time.monotonic() + self.timeout)
        try:
            reply: dict[str, Any] = json.loads(line)
        except ValueError:
            reply = {}
        if not isinstance(reply, dict) or "ok" not in reply:
            raise FarmError(f"{self.name} answered something else than a reply: {line[:200]!r}")
        if not reply["ok"]:
            text = f"{self.name}, asked to {request['do']}: {reply.get('error')}"
            raise Refused(text, str(reply["refused"])) if "refused" in reply else FarmError(text)
        return reply

    def close(self) -> None:
        """Ask the worker to quit, and end it if it does not; twice is fine."""
        process = self._process
        if process.poll() is None and process.stdin is not None:
            try:
                process.stdin.write(b'{"do": "quit"}\n')
                process.stdin.close()
                process.wait(QUIT_TIMEOUT)
            except (OSError, ValueError, subprocess.TimeoutExpired):
                process.kill()
            except BaseException:  # Ctrl-C while it quits
                process.kill()
                raise
        process.wait()
        self._log.close()

    def __enter__(self) -> "Worker":
        """Return itself: it runs already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process; at once if a signal or Ctrl-C ends the program."""
        if error is not None and not isinstance(error, Exception):
            self._process.kill()
        self.close()

    def _started(
        self, command: Sequence[str], environment: Mapping[str, str] | None
    ) -> "subprocess.Popen[bytes]":
        """Start the process; its output besides replies goes to the log."""
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
        )

    def _read_line(self, deadline: float) -> bytes:
        """Read a reply's line before the deadline (time.monotonic)."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([descriptor], [], [], max(left, 0.0))
            if not ready:
                self._process.kill()
                raise FarmError(f"{self.name} gave no answer in {self.timeout:g} s; it was ended")
            chunk = os.read(descriptor, CHUNK_BYTES)
            if not chunk:
                raise self._died()
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _died(self) -> FarmError:
        """Describe a worker that ended by itself."""
        status = self._process.wait()
        self._log.seek(0)
        printed = self._log.read().decode(errors="replace").strip()
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return FarmError(f"{self.name} ended with {how}: {printed[-800:] or 'it printed nothing'}")


def open_worker(engine: str, folder: Path, threads: int, python: str | None = None) -> Worker:
    """Start the worker of a reference engine on this machine with a job prepared.

    `python` is an interpreter that has the framework, where the current one has not; it must be
    able to import pockengine. Under Bazel each worker is a binary with an environment of its own.
    """
    kind = find_engine(engine)
    command = _command(kind.framework.worker, threads, kind.environment, python)
    return _prepared(Worker(*command), folder, engine, threads)


def open_own_worker(
    artifact: Path, folder: Path, threads: int, backend: str = "c", python: str | None = None
) -> Worker:
    """Start a worker of our own engine on this machine, for an artifact compiled from the job.

    The artifact is of `backend`; `python` is an interpreter that has its runtime, as above.
    """
    command = _command(find_runtime(backend).worker, threads, {}, python)
    return _prepared(Worker(*command), folder, str(artifact), threads)


def open_lm_worker(engine: Engine, folder: Path, threads: int, opens: str = "") -> Worker:
    """Start a worker of language models on this machine with a job of `lm_job.py` prepared.

    `opens` is the artifact or file of an engine that does not read the job's model.
    """
    command = _command(engine.framework.worker, threads, engine.environment, None)
    return _prepared(Worker(*command, timeout=LM_TIMEOUT), folder, opens or engine.name, threads)


def compile_by_worker(request: Path, backend: str, python: str | None = None) -> None:
    """Have a backend's worker do a request of `own_compile.py`; FarmError with its words."""
    arguments = ["compile", str(request)]
    run_module(find_runtime(backend).worker, arguments, python, f"{backend} compiles nothing")


def run_module(
    module: str, arguments: Sequence[str], python: str | None = None, failure: str | None = None
) -> None:
    """Run a module of this folder to its end, with a framework of its own, as for workers.

    FarmError, which begins with `failure`, has its last words.
    """
    command, environment = _command(module, 1, {}, python)
    try:
        done = subprocess.run(
            [*command, *arguments],
            env=environment, capture_output=True, text=True, timeout=REPLY_TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as expired:
        raise FarmError(f"{module} ran for over {REPLY_TIMEOUT:g} s; ended") from expired
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise FarmError(f"{failure or f'{module} failed'}: {words[-1][-800:]}")


def _prepared(worker: Worker, folder: Path, engine: str, threads: int) -> Worker:
    """Load the job; a worker that cannot is ended."""
    with ExitStack() as stack:
        stack.enter_context(worker)
        worker.prepare(folder, engine, threads)
        stack.pop_all()
    return worker


def is_available(engine: Engine) -> bool:
    """Whether an engine's framework can run here without another interpreter."""
    return _missing_package(engine.framework) is None


def _missing_package(framework: Framework) -> str | None:
    if framework.bundled and _binary(framework.worker).is_file():
        return None
    return next((name for name in framework.packages if not _is_installed(name)), None)


def _is_installed(package: str) -> bool:
    """Whether a package is installed: onnxruntime often is without onnxruntime.training."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def why_missing(engine: Engine) -> str | None:
    """Return why an engine cannot run here; None if it can."""
    package = _missing_package(engine.framework)
    if package is not None:
        return f"{package} is not installed"
    if engine.compiled and not any(map(shutil.which, CPP_COMPILERS)):
        return f"torch.compile needs a C++ compiler ({' or '.join(CPP_COMPILERS)}): none is here"
    return None


def why_runtime_missing(backend: str) -> str | None:
    """Return what one of our runtimes lacks here, with the command that installs it; None if it can
    run."""
    runtime = find_runtime(backend)
    if runtime.extra is None or _binary(runtime.worker).is_file():
        return None
    try:
        need(runtime.engine, runtime.extra)
    except MissingPackage as error:
        return str(error)
    return None


def _binary(module: str) -> Path:
    """Return the path of a worker's py_binary under Bazel: next to its main file."""
    return Path(__file__).with_name(module)


def _command(
    module: str, threads: int, extra: Mapping[str, str], python: str | None
) -> tuple[list[str], dict[str, str]]:
    """Return the worker's command line and environment."""
    environment = {**os.environ, **extra, "OMP_NUM_THREADS": str(threads)}
    environment["TF_CPP_MIN_LOG_LEVEL"] = "2"
    binary = _binary(module)
    if python is None and binary.is_file():
        environment.pop("PYTHONPATH", None)
        return [str(binary)], environment
    if python is None:
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return [python or sys.executable, "-m", f"pockengine.farm.references.{module}"], environment
