"""What an optimiser is given, and what it builds: the update of one parameter.

The learning rate and the step number are run-time inputs, `lr` (f32) and `step` (i32, the first
step is 1), so that schedules need no new compilation.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Param, Value
from pockengine.compiler.ir.types import F32, I32, DType, Shape, TensorType

STATE_PREFIX = "optimizer."
LEARNING_RATE = "lr"
STEP = "step"


@dataclass(frozen=True)
class Update:
    """One parameter, its gradient, and the channels along `axis` that train (None: all)."""

    g: Builder
    param: Param
    grad: Value
    axis: int | None = None
    channels: Channels = None

    @property
    def lr(self) -> Value:
        """The learning rate, f32[]."""
        return run_time_scalar(self.g, LEARNING_RATE, F32)

    @property
    def step(self) -> Value:
        """The step number as a float, f32[]."""
        return self.g.cast(run_time_scalar(self.g, STEP, I32), dtype=F32.value)

    def state(self, name: str, shape: Shape | None = None) -> Value:
        """Declare a state of this parameter, zero at first, of the gradient's shape or another."""
        zeros = np.zeros(self.grad.shape if shape is None else shape, np.float32)
        full_name = f"{STATE_PREFIX}{name}.{self.param.name}"
        return self.g.param(full_name, zeros, trainable=False)

    def emit(self, op: str, *operands: Value, **attrs: Any) -> Node:
        """Append the update op that writes the trained part of the parameter."""
        if self.channels is not None:
            span = {"start": self.channels.start, "stop": self.channels.stop}
            attrs = {**attrs, "axis": self.axis, **span}
        return self.g.emit(op, self.param.value, *operands, **attrs)


class Optimizer(Protocol):
    """Appends the nodes that update one parameter from its gradient."""

    def update(self, update: Update) -> None:
        """Append the update of `update.param`."""
        ...


def run_time_scalar(g: Builder, name: str, dtype: DType) -> Value:
    """Return the scalar input of this name, declared at its first use."""
    for value in g.graph.inputs:
        if value.name == name:
            return value
    return g.input(name, TensorType(dtype, ()))
