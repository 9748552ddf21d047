"""The user's way in: `pockengine.compile` takes a model to an artifact for a device.

Everything here is a few lines over the stages; use them directly for what this does not offer.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from pockengine.backends.artifact import Artifact, check_place, write_artifact
from pockengine.backends.checkpoint import read_checkpoint
from pockengine.backends.fitting import check_fits
from pockengine.backends.protocol import Backend, BackendOptions, Progress
from pockengine.backends.registry import backend_for
from pockengine.backends.session import Session
from pockengine.backends.stored import decoded
from pockengine.backends.switching import AUTO, Build, choose_backend
from pockengine.backends.switching_report import Switching
from pockengine.backends.training.trainer import Trainer
from pockengine.backends.within_budget import within_budget
from pockengine.boundary import entry_points
from pockengine.check import check_step
from pockengine.compiler.compile import compile_entries, compile_program
from pockengine.compiler.integers import FIXED
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.scalars import converted
from pockengine.compiler.optim import Optimizer, Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.passes.base import Observer
from pockengine.compiler.passes.differentiate import Clip
from pockengine.compiler.program import Program
from pockengine.compiler.quantize.calibrate import input_range
from pockengine.compiler.quantize.fold_norms import FoldedNorm
from pockengine.compiler.quantize.int8 import Int8
from pockengine.compiler.sizes import Range
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.lora import merged, with_folded
from pockengine.compiler.storage import EXACT, Storage
from pockengine.compiler.variants import check_names, compile_variants
from pockengine.devices import Device, find_device
from pockengine.errors import ArtifactError, CompileError
from pockengine.files import write_whole
from pockengine.frontends.choices import with_choices
from pockengine.frontends.frontend import Source, framework_arrays, named_optimizer
from pockengine.frontends.peft.files import Tuning, save_adapters
from pockengine.frontends.peft.load import load_adapters
from pockengine.frontends.registry import find_source, load_frontend, step_source

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Compiled(Trainer):
    """A model compiled for a device: its graph, its program, and the artifact on disk.

    `fit` trains it from data. What gives weights back takes those that `fit` trained, unless it is
    given a session, or the checkpoint that a board saved.
    """

    graph: Graph
    program: Program
    artifact: Artifact
    origin: Source | None = field(default=None, repr=False)
    """The model and its framework's frontend; None for a `Graph`."""
    norms: tuple[FoldedNorm, ...] = field(default=(), repr=False)
    """Batch norms that quantisation folded; weights are given back as they were before them."""
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"Compiled: {self.artifact}"

    def tuned(self, source: Session | Path | None = None) -> Any:
        """Return tuned weights in the form of the framework that the model is of.

        LoRA's products are merged into their weights, as they are by all that gives weights back.
        PyTorch: a state_dict. Keras: the list that `set_weights` takes. JAX: the pytree, or the nnx
        module. ONNX: the model. Else, and for a `Graph`, arrays by name.
        """
        if self._is_torch():
            return self.state_dict(source)
        values = self._merged(source)
        if self.origin is None:
            return framework_arrays(self.graph, values)
        return self.origin.tuned(self.graph, values)

    def integers(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return inputs with those as int8 that the program takes so (`Int8.inputs`)."""
        ranges = {name: input_range(self.graph, name) for name in inputs}
        return {
            name: data if (known := ranges[name]) is None else known.integers(data)
            for name, data in inputs.items()
        }

    def save_weights(self, source: Session | Path, path: Path | str) -> None:
        """Write the tuned weights as safetensors, by the framework's names and in its layouts.

        A kill at any moment leaves the old file or the new one.
        """
        arrays = framework_arrays(self.graph, self._merged(source))
        try:
            write_whole(Path(path), lambda part: save_file(arrays, part))
        except (OSError, SafetensorError) as error:
            raise ArtifactError(f"weights {path} cannot be written: {error}") from error

    def state_dict(self, source: Session | Path | None = None) -> "dict[str, torch.Tensor]":
        """Return tuned parameters as PyTorch holds them, by the model's own names.

        It is the whole state_dict of the module, which `module.load_state_dict` takes: what no step
        changes is as it was. For a `Graph` it has the graph's own params only.
        """
        model = self.origin.model if self.origin and self._is_torch() else None
        return self._torch_state(source, model)

    def loss_state_dict(self, source: Session | Path | None = None) -> "dict[str, torch.Tensor]":
        """Return tuned parameters of a loss that is a module, for its `load_state_dict`."""
        state = self._torch_state(source, None)
        model = None if self.origin is None else self.origin.model
        own: dict[str, torch.Tensor] = load_frontend("PyTorch").loss_state_dict(model, state)
        return own

    def _torch_state(self, source: Session | Path | None, module: Any) -> "dict[str, torch.Tensor]":
        source = self.trained if source is None else source
        values = self._merged(source)
        known = {name: data for name, data in values.items() if name in self.graph.params}
        steps = source.steps if isinstance(source, Session) else 0
        whole: dict[str, torch.Tensor]
        whole = load_frontend("PyTorch").state_dict(self.graph, known, module, steps)
        return whole

    def save_adapters(self, source: Session | Path, folder: Path | str) -> None:
        """Write the LoRA adapters, and what else trained, as a folder that PEFT loads."""
        model = None if self.origin is None else self.origin.model
        save_adapters(self._tuning(), self._params(source), Path(folder), model)

    def load_adapters(self, session: Session, folder: Path | str) -> None:
        """Take the adapters of a PEFT folder into the session: all of it, or AdapterError."""
        for name, data in load_adapters(self._tuning(), Path(folder)).items():
            session.set_param(name, converted(data, session.artifact.params[name].type.dtype))

    def _is_torch(self) -> bool:
        return self.origin is not None and self.origin.frontend.framework == "PyTorch"

    def _tuning(self) -> Tuning:
        return Tuning(self.graph, self.program.adapters, tuple(self.program.scheme))

    def _merged(self, source: Session | Path | None) -> dict[str, np.ndarray]:
        """All params by name; weights that have a LoRA adapter with its product added."""
        adapters = self.program.adapters
        return merged(adapters, with_folded(self.graph, adapters, self._params(source)))

    def _params(self, source: Session | Path | None) -> dict[str, np.ndarray]:
        source = self.trained if source is None else source
        if isinstance(source, Session):
            values = source.params()
        else:
            values = read_checkpoint(self.artifact, source)
        values = decoded(self.artifact.params, values)
        for norm in self.norms:
            norm.unfold(values)
        return values


entry_points(Compiled)


def compile(
    model: Any,
    example_inputs: Any,
    *,
    loss: Any = None,
    optimizer: Any = None,
    constants: Mapping[str, np.ndarray] | None = None,
    trainable: Mapping[str, bool] | None = None,
    scheme: Scheme | str | Path = "full",
    device: Device | str | Path = "host",
    backend: str | None = None,
    clip: Clip | None = None,
    micro_batches: int = 1,
    memory_budget: int | None = None,
    sizes: Range | None = None,
    bf16: bool = False,
    storage: Storage = EXACT,
    quantize: Int8 | None = None,
    check: bool = False,
    tuned: Path | str | None = None,
    prepare: bool = False,
    folder: Path | str | None = None,
    progress: Progress | None = None,
    observe: Observer | None = None,
) -> Compiled:
    """Compile a model to a training artifact.

    `model` is of PyTorch, TensorFlow, JAX or ONNX, or a `Graph`. JAX's `example_inputs` begin with
    the parameters. `loss` is None where the model returns it. docs/usage.md has all arguments.
    """
    model = with_choices(model, constants, trainable)
    way = _way(device, backend, folder, BackendOptions(bf16, tuned, prepare))
    source, graph, rule = _imported(model, example_inputs, loss, optimizer)
    training = Training(scheme, rule, clip or Clip(), micro_batches, memory_budget, storage)
    graph, training, norms = _quantized((source, graph, loss), training, quantize, sizes)
    if check:
        check_step(source or graph, loss, training, example_inputs)
    build = partial(_build, graph, _resizing(graph, source, loss, sizes))
    program, chosen, switching = _fitting(way, build, (training, observe), progress)
    return _written((graph, program, source), chosen, folder, progress, norms, switching)


def _quantized(
    imported: tuple[Source | None, Graph, Any],
    training: Training,
    how: Int8 | None,
    sizes: Range | None,
) -> tuple[Graph, Training, tuple[FoldedNorm, ...]]:
    """Return the graph in integers where that is asked for, how it trains, and norms folded."""
    source, graph, loss = imported
    if how is None:
        return graph, training, ()
    if sizes is not None:
        raise CompileError("quantize= finds ranges for one size; leave sizes= out")
    if replace(training.storage, states=EXACT.states) != EXACT:
        raise CompileError(
            "quantize= holds weights and activations as int8; leave both out of storage="
        )
    rounding = source.frontend.rounding if source is not None else FIXED
    training = replace(training, integers=how.integers(rounding))
    if how.calibration is None and source is not None:
        return source.integers(loss), training, ()
    if how.calibration is None and any(param.held for param in graph.params.values()):
        return graph, training, ()
    quantised, norms = how.apply(graph)
    return quantised, training, norms


def _imported(
    model: Any, example_inputs: Any, loss: Any, optimizer: Any
) -> tuple[Source | None, Graph, Optimizer]:
    """Return where the model comes from, None for a `Graph`; its graph; the optimiser."""
    optimizer = optimizer or Sgd()
    if isinstance(model, Graph):
        return None, model, named_optimizer(optimizer)
    source = find_source(model, example_inputs)
    return source, source.graph(loss), source.optimizer(optimizer)


def _build(
    graph: Graph,
    again: tuple[Callable[[int], Graph], Range] | None,
    training: Training,
    observe: Observer | None,
) -> Callable[..., Program]:
    """Return what compiles for a target: the graph, or its imports of each size of a range."""
    if again is None:
        return partial(compile_program, graph, training, observe=observe)
    return partial(compile_variants, *again, training)


def _fitting(
    way: "_Way",
    build: Callable[[Training, Observer | None], Build],
    wanted: tuple[Training, Observer | None],
    progress: Progress | None,
) -> tuple[Program, Backend, Switching | None]:
    """Compile by a way; CapacityError, with what would fit, where the device is too small."""
    training, observe = wanted
    found = way.follow(build(training, observe), build(training, None), progress)
    program, chosen, _ = found

    def plan(other: Training) -> Program:
        return within_budget(build(other, None), chosen)[0]

    check_fits(program, chosen.target(), training, plan, progress or (lambda _: None))
    return found


def compile_step(
    step: Callable[..., Any],
    example_inputs: Any,
    *,
    carried: int = 1,
    device: Device | str | Path = "host",
    backend: str | None = None,
    folder: Path | str | None = None,
    progress: Progress | None = None,
) -> Compiled:
    """Compile a whole training step of JAX as it is, its gradients and updates included.

    The first `carried` arguments (params, an optimiser's state, a TrainState) stay in the artifact;
    the step returns their new values first, then its outputs. Run it by `session.train_step`.
    """
    way = _way(device, backend, folder)
    source = step_source(step, example_inputs, carried)
    graph = source.graph(None)
    build = partial(compile_entries, graph.name, {"train": graph})
    program, chosen, switching = way.follow(build, build, progress)
    return _written((graph, program, source), chosen, folder, progress, (), switching)


@dataclass(frozen=True)
class _Way:
    """The backend that was asked for, or the device's own where the best is to be chosen."""

    backend: Backend
    options: BackendOptions
    is_open: bool

    def follow(
        self, build: Build, trial: Build, progress: Progress | None
    ) -> tuple[Program, Backend, Switching | None]:
        """Compile by the backend, or by the best of `trial` programs; say why it is the best."""
        switching, backend = None, self.backend
        if self.is_open:
            device = backend.device
            switching = choose_backend(trial, device, self.options, progress)
            backend = backend_for(device.on(switching.chosen), self.options)
        return *within_budget(build, backend), switching


def _way(
    device: Device | str | Path,
    name: str | None,
    folder: Path | str | None,
    options: BackendOptions | None = None,
) -> _Way:
    """Find the device's backend, or another one, once the artifact is known to be writable."""
    if folder is not None:
        check_place(Path(folder))
    options, is_open = options or BackendOptions(), name == AUTO
    found = find_device(device).on(None if is_open else name)
    return _Way(backend_for(found, options), options, is_open)


def _resizing(
    graph: Graph, source: Source | None, loss: Any, sizes: Range | None
) -> tuple[Callable[[int], Graph], Range] | None:
    """Return what imports the model for one size of a range, and the range; None without one."""
    if sizes is None:
        return None
    check_names(sizes, {value.name: value for value in graph.inputs})
    if source is None:
        raise CompileError("a Graph has one size; give the framework's model to compile a range")
    return lambda size: source.resized(sizes.axes, size).graph(loss), sizes


def _written(
    compiled: tuple[Graph, Program, Source | None],
    backend: Backend,
    folder: Path | str | None,
    progress: Progress | None,
    norms: tuple[FoldedNorm, ...] = (),
    switching: Switching | None = None,
) -> Compiled:
    """Write the artifact to its folder, or to a temporary one."""
    keep = None
    if folder is None:
        keep = tempfile.TemporaryDirectory(prefix="pockengine-")
        folder = Path(keep.name) / "artifact"
    graph, program, source = compiled
    place = Path(folder)
    artifact = write_artifact(program, backend, place, progress=progress, switching=switching)
    return Compiled(graph, program, artifact, source, norms, keep)
