"""OpInfo samples through the frontend, the compiler and the generated C, many in one build."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.program import generate
from pockengine.backends.registry import open_session
from pockengine.backends.session import Session
from pockengine.compiler.compile import compile_entries, compile_program
from pockengine.compiler.memory.shared_tensors import share_tensors
from pockengine.compiler.options import Training
from pockengine.compiler.program import Entry, Program
from pockengine.compiler.sparse.scheme import FULL, Scheme
from pockengine.devices import load_device
from pockengine.errors import BuildError, CompileError, ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.conformance.opinfo_samples import (
    Expected,
    NotRunnable,
    SampleModule,
    eager,
    samples_of,
)

RTOL = ATOL = 1e-4
"""Relative and absolute tolerance of an element; that of the loss is relative to its terms."""

GRADIENT = "optimizer.gradient."
"""Prefix of the states that accumulate the gradients of micro-batches."""

MICRO_BATCHES = 2
"""With several, a training step only accumulates gradients, divided by this number."""

PASSED, FAILED, UNSUPPORTED = "passed", "failed", "unsupported"


@dataclass(frozen=True)
class Result:
    """The outcome of a sample, and the reason if it did not pass.

    An `empty` sample has nothing to compare, and does not count for its op.
    """

    op: str
    index: int
    status: str
    reason: str = ""
    empty: bool = False


@dataclass(frozen=True)
class Prepared:
    """A compiled sample that is not built yet; `frozen` params have no gradient in our program."""

    op: str
    index: int
    entry: Entry
    inputs: dict[str, np.ndarray]
    expected: Expected
    frozen: frozenset[str]


class Runner:
    """Compiles samples one by one and builds them together."""

    def __init__(self) -> None:
        self._backend = CBackend(load_device("host"))
        self._count = 0

    def prepare(self, name: str, op: Any, limit: int | None) -> Iterator[Prepared | Result]:
        """Yield each sample of an op, compiled or with its verdict."""
        for index, sample in samples_of(op, limit):
            self._count += 1
            try:
                yield self._compile(name, index, SampleModule(op, sample, f"s{self._count}_"))
            except (ImportModelError, CompileError, NotRunnable) as error:
                yield Result(name, index, UNSUPPORTED, str(error))
            except Exception as error:
                yield Result(name, index, FAILED, f"crashed: {type(error).__name__}: {error}")

    def finish(self, prepared: Sequence[Prepared]) -> list[Result]:
        """Build the samples as one program and compare each with PyTorch."""
        if not prepared:
            return []
        with tempfile.TemporaryDirectory(prefix="pockengine-opinfo-") as folder:
            try:
                program = _merge([item.entry for item in prepared])
                artifact = write_artifact(program, self._backend, Path(folder) / "artifact")
            except BuildError as error:
                return self._bisect(prepared, error)
            with open_session(artifact) as session:
                return [_compare(session, item) for item in prepared]

    def _bisect(self, prepared: Sequence[Prepared], error: BuildError) -> list[Result]:
        """Find the samples whose C does not compile."""
        if len(prepared) == 1:
            (item,) = prepared
            return [Result(item.op, item.index, FAILED, str(error))]
        half = len(prepared) // 2
        return [*self.finish(prepared[:half]), *self.finish(prepared[half:])]

    def _compile(self, name: str, index: int, module: SampleModule) -> Prepared:
        try:
            expected = eager(module)
        except RuntimeError as error:
            raise NotRunnable(f"eager PyTorch: {error}") from error
        frozen = {key for key, gradient in expected.gradients.items() if gradient is None}
        try:
            return self._compiled(name, index, module, expected, frozen)
        except CompileError as error:
            if "does not influence the loss" not in str(error):
                raise
        # Correct if PyTorch's gradient is zero everywhere: compile without it.
        for key, gradient in expected.gradients.items():
            if gradient is None or not gradient.any():
                frozen.add(key)
        return self._compiled(name, index, module, expected, frozen)

    def _compiled(
        self, name: str, index: int, module: SampleModule, expected: Expected, frozen: set[str]
    ) -> Prepared:
        for key, parameter in module.named_parameters():
            parameter.requires_grad_(key not in frozen)
        graph = from_torch(module, module.inputs)
        if any(value.name == "seed" for value in graph.inputs):
            raise NotRunnable("it draws random numbers, which differ from PyTorch's")
        if list(graph.outputs) != ["loss"]:
            raise NotRunnable(f"its loss is {next(iter(graph.outputs.values()))}")
        trained = [key for key, param in graph.params.items() if param.trainable]
        if trained:
            scheme = Scheme("all", tuple((key, FULL) for key in trained))
            training = Training(scheme, micro_batches=MICRO_BATCHES)
            program = compile_program(graph, training, target=self._backend.target())
        else:
            program = compile_entries("opinfo", {"train": graph}, target=self._backend.target())
        train = program.entries["train"]
        entry = replace(train, name=f"sample.{self._count}")
        generate(_merge([entry]), self._backend)  # finds ops that the backend lacks
        arrays = [x.numpy() for x in module.inputs]
        inputs = dict(zip((value.name for value in graph.inputs), arrays, strict=True))
        return Prepared(name, index, entry, inputs, expected, frozenset(frozen))


def _merge(entries: Sequence[Entry]) -> Program:
    """Return one program with all entries, whose params get unique names."""
    named = {entry.name: entry for entry in entries}
    return Program("opinfo", named, *share_tensors(named))


def _compare(session: Session, item: Prepared) -> Result:
    verdict = Result(item.op, item.index, PASSED, empty=item.expected.elements == 0)
    requested = session.artifact.entries[item.entry.name].inputs
    inputs = {name: x for name, x in item.inputs.items() if name in requested}
    try:
        loss = float(session.run(item.entry.name, inputs)["loss"])
    except Exception as error:
        return replace(verdict, status=FAILED, reason=f"{type(error).__name__}: {error}")
    expected = item.expected
    limit = ATOL + RTOL * expected.magnitude
    if not np.isclose(loss, expected.loss, rtol=0, atol=limit, equal_nan=True):
        return replace(verdict, status=FAILED, reason=f"loss {loss:g}, not {expected.loss:g}")
    for name, gradient in expected.gradients.items():
        if name not in item.frozen and gradient is not None and gradient.size:
            found = _gradient(session, item, name)
            if not np.allclose(found, gradient, RTOL, ATOL, equal_nan=True):
                reason = f"gradient of {name}: {_difference(found, gradient)}"
                return replace(verdict, status=FAILED, reason=reason)
    return verdict


def _gradient(session: Session, item: Prepared, name: str) -> np.ndarray:
    """Return the accumulated gradient in PyTorch's order of dimensions."""
    permutation = item.entry.graph.params[name].permutation
    found = session.get_param(GRADIENT + name) * MICRO_BATCHES
    return found if permutation is None else found.transpose(np.argsort(permutation))


def _difference(found: np.ndarray, expected: np.ndarray) -> str:
    if found.shape != expected.shape:
        return f"shape {found.shape}, not {expected.shape}"
    wrong = ~np.isclose(found, expected, RTOL, ATOL, equal_nan=True)
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ, first {list(place)}: "
        f"{found[place]:g}, not {expected[place]:g}"
    )
