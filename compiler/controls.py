"""Inputs of a training step that are no data: no input or param of a model has their names."""

from collections.abc import Mapping

from pockengine.compiler.ir.graph import Value
from pockengine.compiler.ir.types import F32, I32, DType, TensorType

RATE, STEP, SEED = "lr", "step", "seed"
"""The learning rate, the number of the step from 1, and the seed of random numbers."""

CONTROLS: Mapping[str, DType] = {RATE: F32, STEP: I32, SEED: I32}
"""All of them, with the types of these scalars."""


def is_control(value: Value) -> bool:
    """Whether an input of a graph is one of them."""
    dtype = CONTROLS.get(value.name)
    return dtype is not None and value.type == TensorType(dtype, ())
