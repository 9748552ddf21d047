"""The worker's side of the reference protocol: requests on stdin, replies on stdout, a line each.

A worker is a process with one framework, so that the bench can run several in turn, each with its
own environment, and read each one's peak memory. Requests are JSON objects:

    {"do": "prepare", "folder": F, "engine": E, "threads": T}  load a job; all state is reset
    {"do": "train", "out": FILE}        all batches once -> "losses" and "ms" of each; tensors go to
                                        FILE (safetensors)
    {"do": "predict", "out": FILE}      logits of the first batch, [N, classes], go to FILE
    {"do": "step", "count": K, "marked": false}   K steps -> "ms" of each, and the last "loss"
    {"do": "peak_rss"}                  -> "bytes", the process's highest resident memory so far
    {"do": "quit"}

A reply to prepare has the "version", and the "file_bytes" of the file for a device, 0 if unknown.
A reply has "ok"; where that is false, "error" says why and the worker stays usable; "refused" says
it too where the framework has no form of the job. A framework's output goes to stderr. "marked"
puts a counted region (marks.py) round each step.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from pockengine.errors import FarmError, PockEngineError
from pockengine.farm.references.job import Tensors, read_job
from pockengine.farm.references.marks import CallMarks

Reply = dict[str, Any]


class ReferenceTrainer(Protocol):
    """A prepared job: batch `index` (modulo their number) can be trained on, tensors read."""

    def step(self, index: int) -> float:
        """Train on one batch and return its loss."""
        ...

    def predict(self, index: int) -> NDArray[np.generic]:
        """Return the logits of a batch, or the tokens of an answer; batch norms use their running
        statistics.
        """
        ...

    def tensors(self) -> Tensors:
        """Return all parameters and buffers by PyTorch's names and in its layouts."""
        ...


class Answerer:
    """A trainer that answers its prompt instead, the same at each step."""

    def answer(self) -> list[int]:
        """Generate the tokens of the answer."""
        raise NotImplementedError

    def step(self, index: int) -> float:
        """Answer the prompt; return the last token."""
        return float(self.answer()[-1])

    def predict(self, index: int) -> NDArray[np.int64]:
        """Return the answer."""
        return np.asarray(self.answer(), np.int64)

    def tensors(self) -> Tensors:
        """Return nothing: no weight changes."""
        return {}


Prepare = Callable[[Any, str, int], ReferenceTrainer]
"""Builds a job's model with the job's weights, for an engine of the framework, with some threads.

The job is what the worker's reader returns for a folder: `JobData`, or `LmData`.
"""


class Server:
    """Answers one request at a time for a framework of a version; `read` reads its job folders."""

    def __init__(self, version: str, prepare: Prepare, read: Callable[[Path], Any]) -> None:
        """Start with nothing prepared."""
        self.version, self._prepare, self.read = version, prepare, read
        self.trainer: ReferenceTrainer | None = None
        self.steps = 0
        self.done = 0

    def answer(self, request: Reply) -> Reply:
        """Execute a request and return the reply's fields."""
        actions: dict[str, Callable[[Reply], Reply]] = {
            "prepare": self.prepare,
            "train": self.train,
            "predict": self.predict,
            "step": self.step,
            "peak_rss": lambda _: {"bytes": peak_rss_bytes()},
        }
        if request.get("do") not in actions:
            raise ValueError(f"unknown request {request.get('do')!r}; use one of {list(actions)}")
        return actions[request["do"]](request)

    def prepare(self, request: Reply) -> Reply:
        """Load a job."""
        data = self.read(Path(request["folder"]))
        self.trainer = None  # before the next one is built, or two count as peak memory
        self.trainer = self._prepare(data, request["engine"], request["threads"])
        self.steps, self.done = data.steps, 0
        return {"version": self.version, "file_bytes": getattr(self.trainer, "file_bytes", 0)}

    def train(self, request: Reply) -> Reply:
        """Train on every batch once and write the tensors."""
        trainer = self._prepared()
        losses, times = [], []
        for index in range(self.steps):
            start = time.perf_counter_ns()
            losses.append(trainer.step(index))
            times.append((time.perf_counter_ns() - start) / 1e6)
        self.done += self.steps
        save_file(trainer.tensors(), request["out"])
        return {"losses": losses, "ms": times}

    def predict(self, request: Reply) -> Reply:
        """Write the logits of the first batch."""
        save_file({"logits": self._prepared().predict(0)}, request["out"])
        return {}

    def step(self, request: Reply) -> Reply:
        """Time steps one by one."""
        trainer = self._prepared()
        marks = CallMarks() if request.get("marked") else None
        times, loss = [], float("nan")
        for _ in range(request["count"]):
            index = self.done % self.steps
            start = time.perf_counter_ns()
            if marks:
                marks.open()
            loss = trainer.step(index)
            if marks:
                marks.close()
            times.append((time.perf_counter_ns() - start) / 1e6)
            self.done += 1
        return {"ms": times, "loss": loss}

    def _prepared(self) -> ReferenceTrainer:
        if self.trainer is None:
            raise ValueError("nothing is prepared; send a prepare request first")
        return self.trainer


def serve(version: str, prepare: Prepare, read: Callable[[Path], Any] = read_job) -> None:
    """Answer requests until one says quit or stdin ends; `read` reads the folders of its jobs."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server = Server(version, prepare, read)
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("do") == "quit":
            break
        try:
            reply = {"ok": True, **server.answer(request)}
        except FarmError as error:
            reply = {"ok": False, "refused": str(error), "error": f"FarmError: {error}"}
        except (PockEngineError, ValueError, KeyError, OSError, RuntimeError) as error:
            reply = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        _send(replies, reply)


def _send(stream: TextIO, reply: Reply) -> None:
    stream.write(json.dumps(reply) + "\n")
    stream.flush()


def peak_rss_bytes() -> int:
    """Return this process's highest resident memory so far, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM; the peak memory cannot be read")
