"""The user's way in: `pockengine.compile` takes a model to an artifact for a device.

Everything here is a few lines over the stages; use them directly for what this does not offer.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pockengine.backends.c.artifact import Artifact, write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.build import Progress
from pockengine.backends.c.session import Session
from pockengine.compiler.compile import Training, compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Optimizer, Sgd
from pockengine.compiler.passes.differentiate import Clip
from pockengine.compiler.passes.pipeline import Observer
from pockengine.compiler.program import Program
from pockengine.compiler.sizes import Range
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.variants import check_names, compile_variants
from pockengine.devices import load_device
from pockengine.errors import CompileError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Compiled:
    """A model compiled for a device: its graph, its program, and the artifact on disk."""

    graph: Graph
    program: Program
    artifact: Artifact
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    def session(self, threads: int = 1) -> Session:
        """Open the artifact on this machine; it must have been compiled for `host`."""
        return Session(self.artifact, threads)

    def state_dict(self, session: Session) -> "dict[str, torch.Tensor]":
        """Return the session's tuned parameters as PyTorch holds them, by the model's own names.

        Load it by `module.load_state_dict(..., strict=False)`: parameters that were folded away at
        compile time are frozen, so the module still has them.
        """
        from pockengine.frontends.torch_export import to_state_dict

        known = {name: data for name, data in session.params().items() if name in self.graph.params}
        return to_state_dict(self.graph, known)


def compile(
    model: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any],
    *,
    loss: str | None = None,
    optimizer: Optimizer | None = None,
    scheme: Scheme | str | Path = "full",
    device: str = "host",
    clip: Clip | None = None,
    micro_batches: int = 1,
    memory_budget: int | None = None,
    sizes: Range | None = None,
    bf16: bool = False,
    folder: Path | str | None = None,
    progress: Progress | None = None,
    observe: Observer | None = None,
) -> Compiled:
    """Compile a PyTorch module, or a forward `Graph`, to a training artifact.

    `example_inputs` give the shapes and types; `loss` is "cross_entropy", "mse" or None where the
    model returns its loss. `scheme` says what trains: a preset's name, a TOML file or a Scheme.
    `memory_budget` (bytes) bounds the largest live set by recomputing activations. `sizes` lets the
    batch or sequence length vary in a range, by variants that inputs are padded to. `bf16` rounds
    the operands of large products to bf16, summed in f32, where the device can. The artifact
    goes to `folder`, or to a temporary one that lives as long as the result.
    Raises errors below PockEngineError that name what is wrong with model, scheme or device.
    """
    backend = CBackend(load_device(device), bf16=bf16)
    graph = model if isinstance(model, Graph) else _import(model, example_inputs, loss)
    training = Training(scheme, optimizer or Sgd(), clip or Clip(), micro_batches, memory_budget)
    if sizes is None:
        program = compile_program(graph, training, target=backend.target(), observe=observe)
    else:
        check_names(sizes, {value.name: value for value in graph.inputs})
        build = _resizing(model, example_inputs, loss, sizes)
        program = compile_variants(build, sizes, training, target=backend.target())
    keep = None
    if folder is None:
        keep = tempfile.TemporaryDirectory(prefix="pockengine-")
        folder = Path(keep.name) / "artifact"
    artifact = write_artifact(program, backend, Path(folder), progress=progress)
    return Compiled(graph, program, artifact, keep)


def _resizing(
    model: Any, example_inputs: Sequence[Any] | Mapping[str, Any], loss: str | None, sizes: Range
) -> Callable[[int], Graph]:
    """Return a function that imports the model for one size of the range."""
    if isinstance(model, Graph):
        raise CompileError("a Graph has one size; give the framework's model to compile a range")

    def build(size: int) -> Graph:
        return _import(model, resize_examples(model, example_inputs, sizes.axes, size), loss)

    from pockengine.frontends.torch_export import resize_examples

    return build


def _import(
    model: Any, example_inputs: Sequence[Any] | Mapping[str, Any], loss: str | None
) -> Graph:
    from pockengine.frontends.torch_export import from_torch

    return from_torch(model, example_inputs, loss=loss)
