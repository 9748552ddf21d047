"""The result of `pockengine.compile`: a model with its artifact, which can be trained."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.backends.session import Session
from pockengine.boundary import entry_points
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.scalars import converted
from pockengine.compiler.program import Program
from pockengine.compiler.quantize.calibrate import input_range
from pockengine.compiler.quantize.fold_norms import FoldedNorm
from pockengine.compiler.sparse.lora import merged, with_folded
from pockengine.frontends.frontend import Source, framework_arrays
from pockengine.frontends.peft.files import TunedParams, save_adapters
from pockengine.frontends.peft.load import load_adapters
from pockengine.frontends.registry import load_frontend
from pockengine.loaded import Loaded, Weights

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, repr=False)
class Compiled(Loaded):
    """A model compiled for a device: its graph, its program, and the artifact on disk.

    `fit` trains it from data. Methods that export weights use those of `fit`, unless a session or a
    checkpoint saved by a board is passed.
    """

    graph: Graph
    program: Program
    origin: Source | None = None
    """The model and its framework's frontend; None for a `Graph`."""
    norms: tuple[FoldedNorm, ...] = ()
    """Batch norms folded by quantization; exported weights have them unfolded again."""
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def tuned(self, source: Weights = None) -> Any:
        """Return tuned weights in the form of the model's framework.

        LoRA products are merged into their weights, as in every export. PyTorch: a state_dict.
        Keras: the list that `set_weights` takes. JAX: the pytree, or the nnx module. ONNX: the
        model. Others and `Graph`: arrays by name.
        """
        if self._is_torch():
            return self.state_dict(source)
        values = self._merged(source)
        if self.origin is None:
            return framework_arrays(self.graph, values)
        return self.origin.tuned(self.graph, values)

    def integers(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return inputs, quantized to int8 where the program takes int8 (`Int8.inputs`)."""
        ranges = {name: input_range(self.graph, name) for name in inputs}
        return {
            name: data if (known := ranges[name]) is None else known.integers(data)
            for name, data in inputs.items()
        }

    def weights(self, source: Weights = None) -> dict[str, np.ndarray]:
        """Return tuned weights by the framework's names, in its layouts."""
        return framework_arrays(self.graph, self._merged(source))

    def state_dict(self, source: Weights = None) -> "dict[str, torch.Tensor]":
        """Return tuned parameters as PyTorch tensors, by the model's own names.

        This is the complete state_dict, ready for `module.load_state_dict`; entries that training
        does not change keep their values. For a `Graph` it has the graph's own parameters only.
        """
        model = self.origin.model if self.origin and self._is_torch() else None
        return self._torch_state(source, model)

    def loss_state_dict(self, source: Weights = None) -> "dict[str, torch.Tensor]":
        """Return tuned parameters of a loss that is a module, for its `load_state_dict`."""
        state = self._torch_state(source, None)
        model = None if self.origin is None else self.origin.model
        own: dict[str, torch.Tensor] = load_frontend("PyTorch").FRONTEND.loss_state_dict(
            model, state
        )
        return own

    def _torch_state(self, source: Weights, module: Any) -> "dict[str, torch.Tensor]":
        source = self.trained if source is None else source
        values = self._merged(source)
        known = {name: data for name, data in values.items() if name in self.graph.params}
        steps = source.steps if isinstance(source, Session) else 0
        whole: dict[str, torch.Tensor]
        whole = load_frontend("PyTorch").FRONTEND.state_dict(self.graph, known, module, steps)
        return whole

    def save_adapters(self, source: Weights, folder: Path | str) -> None:
        """Write the LoRA adapters, and other trained parameters, as a folder that PEFT loads."""
        model = None if self.origin is None else self.origin.model
        save_adapters(self._tuning(), self._params(source), Path(folder), model)

    def load_adapters(self, session: Session, folder: Path | str) -> None:
        """Load the adapters of a PEFT folder into the session; AdapterError unless all fit."""
        for name, data in load_adapters(self._tuning(), Path(folder)).items():
            session.set_param(name, converted(data, session.artifact.params[name].type.dtype))

    def _is_torch(self) -> bool:
        return self.origin is not None and self.origin.frontend.framework == "PyTorch"

    def _tuning(self) -> TunedParams:
        return TunedParams(self.graph, self.program.adapters, tuple(self.program.scheme))

    def _merged(self, source: Weights) -> dict[str, np.ndarray]:
        """All parameters by name; each adapted weight includes its LoRA product."""
        adapters = self.program.adapters
        return merged(adapters, with_folded(self.graph, adapters, self._params(source)))

    def _params(self, source: Weights) -> dict[str, np.ndarray]:
        values = super()._params(source)
        for norm in self.norms:
            norm.unfold(values)
        return values


entry_points(Compiled)
