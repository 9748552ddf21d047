"""Weights stored as integers in a model's file, and the conversion back."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.graph import Param
from pockengine.compiler.ir.quantization import Quantization
from pockengine.errors import ImportModelError

WIDTHS = {np.dtype(np.int8): 0, np.dtype(np.uint8): 128}
"""8-bit integer types, and their offset from i8."""


@dataclass(frozen=True)
class IntegerWeight:
    """How a file stores a weight, in its order of dimensions; `symmetric` fits i8 unchanged."""

    quantization: Quantization
    symmetric: bool
    in_file: bool
    """Whether the file has integers, not floats that it rounds."""


def integer_weight(
    quantization: Quantization, integers: np.ndarray, *, in_file: bool = True
) -> IntegerWeight:
    """Return the quantization of these integers."""
    shift = WIDTHS.get(integers.dtype)
    symmetric = (
        shift is not None
        and all(zero == shift for zero in quantization.zeros)
        and int(integers.min()) - shift >= -127
    )
    return IntegerWeight(quantization, symmetric, in_file)


def store_integers(graph: Graph, weights: Mapping[str, IntegerWeight], integers: bool) -> None:
    """Record the file's quantization in params; with `integers`, store i8 ones as integers.

    ImportModelError if there is none.
    """
    for name, weight in weights.items():
        param = graph.params.get(name)
        if param is None:
            continue
        layout = param.permutation or tuple(range(len(param.value.shape)))
        found = weight.quantization.transposed(layout)
        if weight.in_file:
            param.source = found
        if integers and weight.symmetric and len(param.value.shape) > 1:
            param.quantization = Quantization(found.scales, (0,) * len(found.scales), found.axis)
    if integers and not any(param.quantization for param in graph.params.values()):
        lopsided = "; those in uint8 must be int8 (QuantType.QInt8)" if weights else ""
        raise ImportModelError(
            f"{graph.name} has no int8 weights; calibrate it: quantize=pockengine.Int8({{...}})"
            f"{lopsided}"
        )


def as_integers(array: np.ndarray, dtype: np.dtype, param: Param | None) -> np.ndarray:
    """Convert real numbers to the file's integers, if it has any.

    The dimensions are in the file's order.
    """
    if param is None or param.source is None or dtype.kind == "f":
        return array
    order = range(array.ndim) if param.permutation is None else np.argsort(param.permutation)
    return param.source.transposed(list(order)).rounded(array, dtype)
