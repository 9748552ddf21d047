"""One compilation: import a model once, then plan, check and build it for a backend."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from pockengine.backends.artifact import Artifact, check_place, write_artifact
from pockengine.backends.fitting import check_fits
from pockengine.backends.protocol import Backend, Progress
from pockengine.backends.registry import backend_for
from pockengine.backends.switching import AUTO, choose_backend
from pockengine.backends.switching_report import Switching
from pockengine.backends.within_budget import within_budget
from pockengine.check import check_step, shows_gradients
from pockengine.compiled import Compiled
from pockengine.compiler.compile import compile_entries, compile_program
from pockengine.compiler.integers import FIXED
from pockengine.compiler.ir import Graph
from pockengine.compiler.options import Training
from pockengine.compiler.passes.base import Observer
from pockengine.compiler.program import Program
from pockengine.compiler.quantize.fold_norms import FoldedNorm
from pockengine.compiler.storage import EXACT
from pockengine.compiler.target import Target
from pockengine.compiler.variants import check_names, compile_variants
from pockengine.devices import Device, find_device, load_device
from pockengine.errors import CompileError
from pockengine.frontends.frontend import Source
from pockengine.frontends.imported import Imported, import_model
from pockengine.options import CompileOptions


@dataclass(frozen=True)
class Compilation:
    """A graph with its options: `plan` returns a program for a target, `compile` an artifact.

    The options are the user's, with the optimizer converted to ours. `norms` are the batch norms
    that quantization folded into the graph. `others` are further entries on the same params.
    """

    graph: Graph
    options: CompileOptions
    device: Device
    source: Source | None = None
    imported: Imported | None = field(default=None, repr=False)
    norms: tuple[FoldedNorm, ...] = ()
    others: Mapping[str, Graph] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        model: Any,
        inputs: Any,
        loss: Any,
        options: CompileOptions,
        others: Mapping[str, Graph] = MappingProxyType({}),
    ) -> Self:
        """Import a model; PockEngineError names the unsupported part of it or of the options."""
        device = _device(options)
        _check_solver(options)
        imported = import_model(model, inputs, loss)
        options = replace(options, optimizer=imported.optimizer(options.optimizer))
        graph, options, norms = _quantized(imported, options)
        if options.sizes is not None:
            check_names(options.sizes, {value.name: value for value in graph.inputs})
        if others and (options.sizes is not None or options.quantize is not None):
            raise CompileError(
                "further entries have one size and no integers; leave sizes= and quantize= out"
            )
        return cls(graph, options, device, imported.source, imported, norms, others)

    def plan(
        self,
        training: Training | None = None,
        *,
        target: Target | None = None,
        observe: Observer | None = None,
    ) -> Program:
        """Plan the program for a target, with the training of the options or another one."""
        training, sizes = training or self.options, self.options.sizes
        if sizes is None:
            return compile_program(
                self.graph, training, target=target, observe=observe, others=self.others
            )
        assert self.imported is not None
        resized = partial(self.imported.resized, sizes.axes)
        return compile_variants(resized, sizes, training, target=target)

    def compile(
        self,
        folder: Path | None = None,
        progress: Progress | None = None,
        observe: Observer | None = None,
    ) -> Compiled:
        """Plan, check and build; into a temporary folder by default.

        CapacityError, with a plan that fits, if the device is too small; CheckError if the first
        step differs from the framework's.
        """
        if folder is not None:
            check_place(folder)
        backend, switching = self._backend(progress)
        if self.options.check and not self._checks_itself(backend):
            self._check()
        program, backend = within_budget(partial(self.plan, observe=observe), backend)
        self._check_fits(program, backend, progress)
        keep = None
        if folder is None:
            keep = tempfile.TemporaryDirectory(prefix="pockengine-")
            folder = Path(keep.name) / "artifact"
        artifact = write_artifact(
            *(program, backend, folder),
            progress=progress,
            switching=switching,
            approve=self._check if self._checks_itself(backend) else _approved,
        )
        return Compiled(
            artifact,
            self.graph,
            program,
            origin=self.source,
            norms=self.norms,
            _folder=keep,
        )

    def _backend(self, progress: Progress | None) -> tuple[Backend, Switching | None]:
        """Return the requested backend, or the best one, and how it was found."""
        if self.options.backend != AUTO:
            return backend_for(self.device, self.options), None
        switching = choose_backend(self.plan, self.device, self.options, progress)
        return backend_for(self.device.on(switching.chosen), self.options), switching

    def _checks_itself(self, backend: Backend) -> bool:
        """Whether the check compares the artifact's own step, run on this machine."""
        options = self.options
        exact = shows_gradients(options) and not options.bf16
        here = backend.device == load_device("host")
        return options.check and exact and here and options.sizes is None and not options.quantize

    def _check(self, artifact: Artifact | None = None) -> None:
        if self.imported is not None:
            check_step(self.imported, self.options, artifact)

    def _check_fits(self, program: Program, backend: Backend, progress: Progress | None) -> None:
        def plan(other: Training) -> Program:
            return within_budget(partial(self.plan, other), backend)[0]

        tell = progress or (lambda text: None)
        check_fits(program, backend.target(), self.options, plan=plan, tell=tell)


@dataclass(frozen=True)
class StepCompilation(Compilation):
    """The compilation of a framework's complete training step; no gradients are derived."""

    def plan(
        self,
        training: Training | None = None,
        *,
        target: Target | None = None,
        observe: Observer | None = None,
    ) -> Program:
        """Plan the step for a target."""
        return compile_entries(self.graph.name, {"train": self.graph}, target=target)

    @classmethod
    def of_step(cls, source: Source, options: CompileOptions) -> Self:
        """Import a step."""
        device = _device(options)
        return cls(source.graph(None), options, device, source)


def _approved(artifact: Artifact) -> None:
    """Return the artifact unchecked."""


def _device(options: CompileOptions) -> Device:
    """Find the device and select its backend; an unsupported one is reported at once."""
    device = find_device(options.device).on(None if options.backend == AUTO else options.backend)
    backend_for(device, options)
    return device


def _check_solver(options: CompileOptions) -> None:
    """Raise CompileError for a solver without a budget, which would have no effect."""
    if options.solver_seconds and options.memory_budget is None:
        raise CompileError(
            "solver_seconds is for the least recomputation within a memory_budget; give one, or "
            "leave solver_seconds out"
        )


def _quantized(
    imported: Imported, options: CompileOptions
) -> tuple[Graph, CompileOptions, tuple[FoldedNorm, ...]]:
    """Return the graph (quantized on request), how it trains, and the folded norms."""
    graph, source, how = imported.graph, imported.source, options.quantize
    if how is None:
        return graph, options, ()
    if options.sizes is not None:
        raise CompileError("quantize= finds ranges for one size; leave sizes= out")
    if replace(options.storage, states=EXACT.states) != EXACT:
        raise CompileError(
            "quantize= holds weights and activations as int8; leave both out of storage="
        )
    rounding = source.frontend.rounding if source is not None else FIXED
    options = replace(options, integers=how.integers(rounding))
    if how.calibration is None and source is not None:
        return source.integers(imported.loss), options, ()
    if how.calibration is None and any(param.quantization for param in graph.params.values()):
        return graph, options, ()
    quantized, norms = how.apply(graph)
    return quantized, options, norms
