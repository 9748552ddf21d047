"""JAX's models: functions with their params, Flax's modules, and whole training steps."""

from collections.abc import Mapping
from typing import Any

from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Optimizer
from pockengine.frontends.frontend import Arrays, Frontend, named_optimizer
from pockengine.frontends.jax.model import (
    carried_of,
    from_jax,
    is_jax,
    parameters_of,
    resize_examples,
    to_pytree,
)
from pockengine.frontends.jax.optimizers import is_optax, to_optimizer
from pockengine.frontends.jax.reference import reference
from pockengine.frontends.reference import Nudge, Reference


class JaxFrontend(Frontend):
    """JAX's functions and Flax's modules."""

    framework = "JAX"

    def recognizes(self, model: Any) -> bool:
        """Whether this is a function, or a module of Flax."""
        return is_jax(model)

    def graph(self, model: Any, inputs: Any, loss: Any) -> Graph:
        """Import a function or a module."""
        return from_jax(model, inputs, loss=loss)

    def resized(
        self, model: Any, inputs: Any, axes: Mapping[str, int], *, size: int, loss: Any
    ) -> Any:
        """Return example inputs of another size."""
        return resize_examples(model, inputs, axes, size)

    def reference(self, model: Any, inputs: Any, loss: Any, nudge: Nudge) -> Reference | None:
        """Return JAX's loss and gradients."""
        return reference(model, inputs, loss, nudge)

    def optimizer(self, model: Any, requested: Any) -> Optimizer:
        """Convert a transformation of optax."""
        return to_optimizer(requested) if is_optax(requested) else named_optimizer(requested)

    def tuned(self, model: Any, inputs: Any, graph: Graph, values: Arrays) -> Any:
        """Return the given pytree, or the nnx module, with tuned leaves."""
        return to_pytree(graph, values, parameters_of(model, inputs))


class StepFrontend(Frontend):
    """Whole steps: the result is a single pytree, or a tuple of them."""

    framework = "JAX"

    def __init__(self, carried: int) -> None:
        self.carried = carried

    def graph(self, model: Any, inputs: Any, loss: Any) -> Graph:
        """Import a step, whose first arguments stay in the artifact."""
        return from_jax(model, inputs, carried=self.carried)

    def tuned(self, model: Any, inputs: Any, graph: Graph, values: Arrays) -> Any:
        """Return the state that the step carries."""
        trees = carried_of(model, inputs, self.carried)
        if self.carried == 1:
            return to_pytree(graph, values, *trees.values())
        return tuple(to_pytree(graph, values, tree, name) for name, tree in trees.items())


FRONTEND = JaxFrontend()
