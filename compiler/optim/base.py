"""What an optimiser is given, and what it builds: the update of one parameter.

The learning rate and the step number are run-time inputs, `lr` (f32) and `step` (i32, the first
step is 1), so that schedules need no new compilation.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Contents, Filled
from pockengine.compiler.ir.graph import Node, Param, ParamKind, Value
from pockengine.compiler.ir.types import F32, I32, DType, Shape, TensorType, f32
from pockengine.compiler.ops.registry import ChannelSet
from pockengine.compiler.ops.shape import part_of_axis

STATE_PREFIX = "optimizer."
LEARNING_RATE = "lr"
STEP = "step"


@dataclass(frozen=True)
class Update:
    """One parameter, its gradient, and the channels along `axis` that train (None: all).

    `rate` is what the learning rate is multiplied by.
    """

    g: Builder
    param: Param
    grad: Value
    axis: int | None = None
    channels: Channels = None
    rate: float = 1.0

    @property
    def lr(self) -> Value:
        """The learning rate, f32[]."""
        lr = run_time_scalar(self.g, LEARNING_RATE, F32)
        return lr if self.rate == 1 else self.g.mul(lr, self.g.scalar(self.rate))

    @property
    def step(self) -> Value:
        """The step number as a float, f32[]."""
        return self.g.cast(run_time_scalar(self.g, STEP, I32), dtype=F32.value)

    def state(self, name: str, shape: Shape | None = None) -> Value:
        """Declare a state of this parameter, zero at first, of the gradient's shape or another."""
        return self.state_of(name, Filled(f32(*(self.grad.shape if shape is None else shape))))

    def state_of(self, name: str, start: Contents) -> Value:
        """Declare a state of this parameter that starts so."""
        full_name = f"{STATE_PREFIX}{name}.{self.param.name}"
        return self.g.param(full_name, start, trainable=False, kind=ParamKind.OPTIMIZER)

    @property
    def part(self) -> Value:
        """The channels of the parameter that train, of the gradient's shape."""
        if self.axis is None or self.channels is None:
            return self.param.value
        return part_of_axis(self.g, self.param.value, self.axis, self.channels)

    def emit(self, op: str, *operands: Value, **attrs: Any) -> Node:
        """Append the update op that writes the trained part of the parameter."""
        if self.channels is not None:
            attrs = {**attrs, "axis": self.axis, **_span(self.channels)}
        return self.g.emit(op, self.param.value, *operands, **attrs)


def _span(channels: ChannelSet) -> dict[str, Any]:
    """Return the attrs of an update that say which channels it writes."""
    if isinstance(channels, range):
        return {"start": channels.start, "stop": channels.stop}
    return {"index": tuple(channels)}


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
