"""Optimisers: data that knows which update node to append for a parameter and its gradient."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.errors import CompileError

STATE_PREFIX = "optimizer."


class Optimizer(Protocol):
    """Appends the update of one parameter; the learning rate is a run-time scalar."""

    def update(
        self, g: Builder, param: Value, grad: Value, lr: Value, axis: int | None, channels: Channels
    ) -> Node:
        """Append the node that writes `param`, or its `channels` along `axis`, from `grad`."""
        ...


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent, with PyTorch's meaning of every field."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1 or self.weight_decay < 0:
            raise CompileError(f"{self}: momentum must be in [0, 1) and weight_decay >= 0")
        if self.nesterov and not self.momentum:
            raise CompileError(f"{self}: nesterov needs a momentum")

    def update(
        self, g: Builder, param: Value, grad: Value, lr: Value, axis: int | None, channels: Channels
    ) -> Node:
        """Append `sgd_update`; with momentum also a zero velocity as state of the program."""
        operands = [param, grad, lr]
        if self.momentum:
            name = f"{STATE_PREFIX}velocity.{param.name}"
            zeros = np.zeros(grad.shape, np.float32)
            operands.append(g.param(name, zeros, trainable=False))
        span = {} if channels is None else {"start": channels.start, "stop": channels.stop}
        return g.emit(
            "sgd_update",
            *operands,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            axis=None if channels is None else axis,
            **span,
        )
