"""The frontend interface: import a framework's model, and export its weights.

Each framework's package has a `frontend.py` with its `FRONTEND`; registry.py finds the right one.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.integers import FIXED
from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import NAMED, Optimizer
from pockengine.errors import CompileError, ImportModelError
from pockengine.frontends.losses import OWN
from pockengine.frontends.model_files import OpenedModel
from pockengine.frontends.reference import Nudge, Reference

Arrays = Mapping[str, np.ndarray]


class Frontend:
    """A framework's frontend; the methods have defaults for optional features."""

    framework: str
    rounding = FIXED
    """Rounding of int8, if the framework's own integers define one."""

    def recognizes(self, model: Any) -> bool:
        """Whether this is a model of the framework (which is imported by now), or its file."""
        raise NotImplementedError

    def opens(self, model: Any) -> Any:
        """Return a model in the common form that the other methods take."""
        return model

    def open_file(self, path: Path) -> OpenedModel:
        """Open a model's file: see `model_files.Opened`."""
        raise ImportModelError(f"{path}: a model of {self.framework} has no file to be opened")

    def graph(self, model: Any, inputs: Any, loss: Any) -> Graph:
        """Import a model; ImportModelError lists unsupported parts."""
        raise NotImplementedError

    def stated_loss(self, model: Any) -> Any:
        """Return the training loss that a model or its file states; None without one."""
        return None

    def integers(self, model: Any, inputs: Any, loss: Any) -> Graph:
        """Import an int8 model with its ranges; CompileError if it has none."""
        raise CompileError(
            f"a model of {self.framework} carries no ranges of integers; give pockengine.Int8 "
            "samples of its inputs"
        )

    def resized(
        self, model: Any, inputs: Any, axes: Mapping[str, int], *, size: int, loss: Any
    ) -> Any:
        """Return example inputs of another size along some axes; CompileError if it cannot."""
        raise CompileError(
            f"sizes= is for models of PyTorch and JAX; import each size of a {self.framework} "
            "model on its own"
        )

    def reference(self, model: Any, inputs: Any, loss: Any, nudge: Nudge) -> Reference | None:
        """Return the framework's own loss and gradients on the example inputs, if available."""
        return None

    def quiet(self, model: Any, drawing: Collection[str]) -> AbstractContextManager[None]:
        """Disable dropout temporarily, if the framework can.

        `drawing` are the paths of the parts of the model that draw random numbers.
        """
        return nullcontext()

    def optimizer(self, model: Any, requested: Any) -> Optimizer:
        """Convert one of the framework's optimizers to ours."""
        return named_optimizer(requested)

    def tuned(self, model: Any, inputs: Any, graph: Graph, values: Arrays) -> Any:
        """Return tuned weights in the framework's own form."""
        return framework_arrays(graph, values)


@dataclass(frozen=True)
class Source:
    """A model with its example inputs and its frontend."""

    frontend: Frontend
    model: Any
    inputs: Any

    def graph(self, loss: Any) -> Graph:
        """Import the model."""
        return self.frontend.graph(self.model, self.inputs, loss)

    def loss(self, requested: Any) -> Any:
        """Return the loss to add: the given one, else the model's own choice; OWN is None."""
        if requested is None:
            return self.frontend.stated_loss(self.model)
        return None if isinstance(requested, str) and requested == OWN else requested

    def integers(self, loss: Any) -> Graph:
        """Import an int8 model with its ranges; CompileError if it has none."""
        return self.frontend.integers(self.model, self.inputs, loss)

    def resized(self, axes: Mapping[str, int], size: int, loss: Any) -> "Source":
        """Resize the example inputs; CompileError if the frontend cannot."""
        inputs = self.frontend.resized(self.model, self.inputs, axes, size=size, loss=loss)
        return Source(self.frontend, self.model, inputs)

    def reference(self, loss: Any, nudge: Nudge) -> Reference | None:
        """Return the framework's own loss and gradients on the example inputs, if available."""
        return self.frontend.reference(self.model, self.inputs, loss, nudge)

    def quiet(self, drawing: Collection[str]) -> AbstractContextManager[None]:
        """Disable dropout, and other parts that draw, temporarily, if the framework can."""
        return self.frontend.quiet(self.model, drawing)

    def optimizer(self, requested: Any) -> Optimizer:
        """Return our optimizer, converted from the framework's if necessary."""
        framework = self.frontend.framework
        has = {name for name in ("init", "update") if hasattr(requested, name)}
        if len(has) == 2 and framework != "JAX":
            raise CompileError(
                "a transformation of optax is for JAX's models; give pockengine.Adam() or the "
                f"like, or an optimizer of {framework}"
            )
        if isinstance(requested, str) and framework != "TensorFlow":
            return named_optimizer(requested)
        foreign = not type(requested).__module__.startswith("pockengine.")
        if foreign and has != {"update"}:
            return self.frontend.optimizer(self.model, requested)
        return named_optimizer(requested)

    def tuned(self, graph: Graph, values: Arrays) -> Any:
        """Return tuned weights in the framework's own form."""
        known = {name: data for name, data in values.items() if name in graph.params}
        return self.frontend.tuned(self.model, self.inputs, graph, known)


def named_optimizer(optimizer: Any) -> Optimizer:
    """Return a PockEngine optimizer unchanged, or by its name with its defaults."""
    if isinstance(optimizer, str):
        if optimizer.lower() not in NAMED:
            raise CompileError(f"unknown optimizer {optimizer!r}; known are {', '.join(NAMED)}")
        own: Optimizer = NAMED[optimizer.lower()]()
        return own
    if isinstance(optimizer, type) or not callable(getattr(optimizer, "update", None)):
        raise CompileError(
            f"{optimizer!r} is no optimizer that this model can have; give pockengine.Adam() or "
            f"the like, one of the model's framework, or a name: {', '.join(NAMED)}"
        )
    own = optimizer
    return own


def framework_arrays(graph: Graph, values: Arrays) -> dict[str, np.ndarray]:
    """Return arrays by name, in the framework's own order of dimensions."""
    arrays = {}
    for name, array in values.items():
        param = graph.params.get(name)
        if param is not None:
            back = None if param.permutation is None else np.argsort(param.permutation)
            arrays[name] = np.array(array if back is None else array.transpose(back), order="C")
    return arrays
