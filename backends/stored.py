"""Decode stored weights to f32."""

from collections.abc import Mapping

import numpy as np

from pockengine.backends.manifest import ParamSpec
from pockengine.compiler.ir.blocks import scales_name
from pockengine.compiler.ir.scalars import numbers_of

Arrays = dict[str, np.ndarray]


def decoded(specs: Mapping[str, ParamSpec], values: Mapping[str, np.ndarray]) -> Arrays:
    """Return an artifact's params as decoded numbers; scales of codes are not listed.

    These are the numbers that the program computes with, including the loss of 4-bit storage.
    """
    scales = {scales_name(name) for name, spec in specs.items() if spec.blocks is not None}
    return {name: _numbers(name, specs[name], values) for name in values if name not in scales}


def _numbers(name: str, spec: ParamSpec, values: Mapping[str, np.ndarray]) -> np.ndarray:
    if spec.blocks is not None:
        return spec.blocks.decode(values[name], values[scales_name(name)])
    if spec.quantization is not None:
        return spec.quantization.real(values[name])
    stored_float = spec.type.dtype.is_float and not spec.type.dtype.computed
    return numbers_of(values[name]).astype(np.float32) if stored_float else values[name]
