"""The model's variables: names, and conversion to params of the graph."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.controls import CONTROLS
from pockengine.compiler.ir import F32, Builder
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Layout, Tensor, identity, plain
from pockengine.frontends.problems import EMPTY
from pockengine.frontends.tensorflow.ops import Known, Opaque
from pockengine.frontends.tensorflow.ops.emulated_types import HALVES

DEPTHWISE: Layout = (0, 1, 3, 2)
"""Our (KH, KW, 1, C) of a depthwise kernel that TensorFlow stores as (KH, KW, C, 1)."""
RESERVED = {*CONTROLS, "target"}
"""Inputs that a training step adds."""


@dataclass(eq=False)
class Variable:
    """One variable while it is imported; `current` is its current value.

    `written` says whether the model itself writes it (running statistics, counters).
    """

    name: str
    data: np.ndarray
    trainable: bool
    layout: Layout
    written: bool
    current: Known = None

    def read(self, g: Builder) -> Known:
        """Return the variable's value; the first read declares the param."""
        if self.current is None:
            self.current = self._declare(g)
        return self.current

    def _declare(self, g: Builder) -> Known:
        if self.trainable and self.data.dtype.name in HALVES:
            raise Unsupported(
                f"weights of {self.data.dtype.name} lose small updates; keep them in float32, as "
                f"Keras's policy mixed_{self.data.dtype.name} does"
            )
        if self.data.dtype != F32.numpy:
            if self.written:
                return Opaque(f"the state {self.name!r} of {self.data.dtype}; only floats are kept")
            return self.data
        if not self.data.size:
            raise Unsupported(EMPTY)
        if self.name in RESERVED:
            raise Unsupported(f"the training step has an input {self.name!r}; rename the variable")
        moved = self.layout != identity(self.data.ndim)
        value = g.param(
            self.name,
            np.array(self.data.transpose(self.layout), order="C"),
            permutation=self.layout if moved else None,
            trainable=self.trainable,
        )
        return Tensor(value, self.layout) if moved else plain(value)


def named_variables(variables: Iterable[Any]) -> dict[str, Any]:
    """Name variables: Keras's by their path, others by TensorFlow's name; a later twin by `_1`."""
    named: dict[str, Any] = {}
    for variable in variables:
        if any(variable is other for other in named.values()):
            continue
        stem = getattr(variable, "path", None) or str(variable.name).split(":")[0]
        name, count = stem, 0
        while name in named:
            count += 1
            name = f"{stem}_{count}"
        named[name] = variable
    return named


def import_variable(name: str, variable: Any, uses: "Uses") -> Variable:
    """Copy a variable's value, so that later changes of the model do not reach us."""
    data = np.array(variable.numpy())
    layout = DEPTHWISE if uses.depthwise and data.ndim == 4 else identity(data.ndim)
    if layout == DEPTHWISE and data.shape[3] != 1:
        layout = identity(4)
    return Variable(name, data, bool(variable.trainable), layout=layout, written=uses.written)


@dataclass(frozen=True)
class Uses:
    """How the traced function uses a variable's handle.

    `depthwise`: every read of it is the kernel of a depthwise convolution.
    """

    depthwise: bool
    written: bool


def uses_of(handle: Any, may_write: bool) -> Uses:
    """Find the uses of a handle; a function that receives it counts as a writer if `may_write`."""
    reads: list[Any] = []
    written = False
    for user in handle.consumers():
        if user.type.startswith("Assign"):
            written = True
        elif user.type == "ReadVariableOp":
            reads += [(reader, user.outputs[0]) for reader in user.outputs[0].consumers()]
        else:
            written = written or (may_write and user.type != "ResourceGather")
            reads.append((user, None))
    depthwise = all(
        reader.type == "DepthwiseConv2dNative" and reader.inputs[1] is value
        for reader, value in reads
    )
    return Uses(bool(reads) and depthwise, written)
