"""The interface of optimizers: build the update of one parameter.

The learning rate and the step number are run-time inputs, `lr` (f32) and `step` (i32, the first
step is 1), so schedules need no recompilation; random numbers depend on `seed` (i32).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.controls import CONTROLS, RATE, STEP
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Filled
from pockengine.compiler.ir.graph import Graph, Node, Param, ParamKind, Value
from pockengine.compiler.ir.types import F32, Shape, TensorType, f32
from pockengine.compiler.ops.registry import ChannelSet
from pockengine.compiler.ops.shape import part_of_axis

STATE_PREFIX = "optimizer."

Results = tuple[Value, ...]
"""New contents of a parameter, then of its states."""


@dataclass(frozen=True)
class Update:
    """One parameter, its gradient, and the trained channels along `axis` (None: all).

    `rate` multiplies the learning rate; with `scaled` the gradient already includes the rate.
    """

    g: Builder
    param: Param
    grad: Value
    axis: int | None = None
    channels: Channels = None
    rate: float = 1.0
    scaled: bool = False

    @property
    def lr(self) -> Value:
        """The learning rate, f32[]."""
        if self.scaled:
            return self.g.scalar(1.0)
        lr = control(self.g, RATE)
        return lr if self.rate == 1 else self.g.mul(lr, self.g.scalar(self.rate))

    @property
    def step(self) -> Value:
        """The step number as a float, f32[]."""
        return self.g.cast(control(self.g, STEP), dtype=F32.value)

    def state(self, name: str, shape: Shape | None = None, start: float = 0.0) -> Value:
        """Declare a state, filled with `start`; its shape is the gradient's by default."""
        contents = Filled(f32(*(self.grad.shape if shape is None else shape)), start)
        full_name = f"{STATE_PREFIX}{name}.{self.param.name}"
        return self.g.param(full_name, contents, trainable=False, kind=ParamKind.OPTIMIZER)

    @property
    def part(self) -> Value:
        """The trained channels of the parameter, in the gradient's shape."""
        if self.axis is None or self.channels is None:
            return self.param.value
        return part_of_axis(self.g, self.param.value, self.axis, self.channels)

    def correction(self, beta: float) -> Value:
        """1 - beta^step, without the cancellation of a power in f32."""
        g = self.g
        if not beta:
            return g.scalar(1.0)
        return g.neg(g.expm1(g.mul(self.step, g.scalar(math.log(beta)))))

    def track(self, name: str, value: Value, blend: Value) -> Value:
        """Move a state towards `value` by the fraction `blend`; return its new contents."""
        g = self.g
        state = self.state(name, value.shape)
        moved = g.add(state, g.mul(g.sub(value, state), blend))
        g.emit("assign", state, moved)
        return moved

    def by_elements(
        self, formula: Callable[..., Sequence[Value]], others: Sequence[Value], *states: Value
    ) -> Node:
        """Append an update by a formula of elementwise ops, as one kernel.

        `formula(g, param, grad, *others, *states)` returns the new contents of the trained part of
        the parameter, then of each state; `others` are scalars, or broadcast to the gradient.
        """
        operands = (self.grad, *others, *states)
        body = Graph("update")
        g = Builder(body)
        types = [self.grad.type, *(value.type for value in operands)]
        inner = [g.input(f"x{index}", type_) for index, type_ in enumerate(types)]
        writes = (0, *range(len(types) - len(states), len(types)))
        for place, new in zip(writes, formula(g, *inner), strict=True):
            g.output(f"new_x{place}", new)
        return self.emit("elementwise_update", *operands, body=body, writes=writes)

    def emit(self, op: str, *operands: Value, **attrs: Any) -> Node:
        """Append an update op that writes the trained part of the parameter."""
        if self.channels is not None:
            attrs = {**attrs, "axis": self.axis, **_span(self.channels)}
        return self.g.emit(op, self.param.value, *operands, **attrs)


def _span(channels: ChannelSet) -> dict[str, Any]:
    """Return the attrs that restrict an update to the trained channels."""
    if isinstance(channels, range):
        return {"start": channels.start, "stop": channels.stop}
    return {"index": tuple(channels)}


@runtime_checkable
class Optimizer(Protocol):
    """Appends the nodes that update one parameter from its gradient."""

    def update(self, update: Update) -> None:
        """Append the update of `update.param`."""
        ...


def control(g: Builder, name: str) -> Value:
    """Return a control of the step, declared as an input at its first use."""
    for value in g.graph.inputs:
        if value.name == name:
            return value
    return g.input(name, TensorType(CONTROLS[name], ()))
