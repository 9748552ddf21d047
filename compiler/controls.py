"""Control inputs of a training step; no input or param of a model may have these names."""

from collections.abc import Mapping

from pockengine.compiler.ir.graph import Value
from pockengine.compiler.ir.types import F32, I32, DType, TensorType

RATE, STEP, SEED = "lr", "step", "seed"
"""The learning rate, the step number (from 1), and the random seed."""

CONTROLS: Mapping[str, DType] = {RATE: F32, STEP: I32, SEED: I32}
"""All control inputs with their scalar types."""


def is_control(value: Value) -> bool:
    """Whether an input of a graph is a control."""
    dtype = CONTROLS.get(value.name)
    return dtype is not None and value.type == TensorType(dtype, ())
