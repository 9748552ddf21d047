"""PyTorch's models: modules and exported programs."""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from pockengine.compiler.integers import FLOAT
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.graph import LOSS
from pockengine.compiler.optim import Optimizer
from pockengine.errors import ImportModelError
from pockengine.frontends.frontend import Arrays, Frontend
from pockengine.frontends.reference import Nudge, Reference
from pockengine.frontends.torch.loss import loss_state
from pockengine.frontends.torch.model import from_torch, resize_examples, to_state_dict
from pockengine.frontends.torch.optimizers import to_optimizer
from pockengine.frontends.torch.reference import reference, without_dropout


class TorchFrontend(Frontend):
    """PyTorch's models, with their states and the params of a loss."""

    framework = "PyTorch"
    rounding = FLOAT

    def recognizes(self, model: Any) -> bool:
        """Whether this is a module or an exported program."""
        return isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))

    def opens(self, model: Any) -> Any:
        """Return the module of an exported program."""
        return model if hasattr(model, "forward") else model.module()

    def graph(self, model: Any, inputs: Any, loss: Any) -> Graph:
        """Import a module; ImportModelError if it has no loss."""
        graph = from_torch(model, inputs, loss=loss)
        if LOSS not in graph.outputs:
            raise ImportModelError(
                f"{graph.name} returns {', '.join(graph.outputs)} and no loss: give loss=, such "
                "as 'cross_entropy' or 'mse', or return one number beside them, or name a number "
                f"{LOSS!r} in a dict"
            )
        return graph

    def integers(self, model: Any, inputs: Any, loss: Any) -> Graph:
        """Import a module that PyTorch quantized."""
        return from_torch(model, inputs, loss=loss, integers=True)

    def resized(
        self, model: Any, inputs: Any, axes: Mapping[str, int], *, size: int, loss: Any
    ) -> Any:
        """Return example inputs of another size."""
        return resize_examples(model, inputs, axes, size, loss=loss)

    def reference(self, model: Any, inputs: Any, loss: Any, nudge: Nudge) -> Reference | None:
        """Return PyTorch's loss and gradients."""
        return reference(model, inputs, loss, nudge)

    def quiet(self, model: Any, drawing: Collection[str]) -> AbstractContextManager[None]:
        """Turn dropout off for a while, and modules that do nothing but draw, as DropPath."""
        return without_dropout(model, drawing)

    def optimizer(self, model: Any, requested: Any) -> Optimizer:
        """Convert an optimizer of torch.optim."""
        return to_optimizer(model, requested)

    def tuned(self, model: Any, inputs: Any, graph: Graph, values: Arrays) -> Any:
        """Return the whole state_dict of the module."""
        return to_state_dict(graph, values, model)

    def state_dict(
        self, graph: Graph, values: Arrays, module: torch.nn.Module | None, steps: int
    ) -> dict[str, torch.Tensor]:
        """Return a module's whole state_dict after this many steps, or of a graph its own
        params.
        """
        return to_state_dict(graph, values, module, steps)

    def loss_state_dict(
        self, model: Any, state: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return the part of a state_dict of a loss module, by the loss's own names."""
        return loss_state(model, state)


FRONTEND = TorchFrontend()
