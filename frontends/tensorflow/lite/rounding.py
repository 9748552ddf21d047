"""Integers of an int8 file: integer inputs, and results rounded to integers.

The graph computes with real numbers; the passes of `compiler/passes/integers/` convert it to the
file's integers, with TensorFlow Lite's reference arithmetic. A file's u8 is i8 here, 128 less.
"""

import numpy as np

from pockengine.compiler.ir import Builder, DType, TensorType, Value
from pockengine.compiler.ir.quantization import Quantization
from pockengine.frontends.emit.integers import LOW
from pockengine.frontends.emit.integers import rounded as emit_rounded
from pockengine.frontends.layout import Tensor
from pockengine.frontends.tensorflow.lite.file import FileTensor

ROUNDED = ("INT8", "UINT8")


def range_of(tensor: FileTensor) -> tuple[float, int] | None:
    """Return the scale and zero point of a tensor of one range; None for any other."""
    if tensor.kind not in ROUNDED or tensor.scale.size != 1 or not tensor.scale[0] > 0:
        return None
    zero = int(tensor.zero[0]) if tensor.zero.size else 0
    return float(tensor.scale[0]), zero - 128 * (tensor.kind == "UINT8")


def integer_input(
    g: Builder, name: str, shape: tuple[int, ...], tensor: FileTensor
) -> Value | None:
    """Declare an integer input, and return its dequantized numbers."""
    known = range_of(tensor)
    if known is None:
        return None
    scale, zero = known
    return g.dequantize(g.input(name, TensorType(DType.I8, shape)), g.scalar(scale), zero=zero)


def rounded(g: Builder, result: Tensor, tensor: FileTensor) -> Tensor:
    """Round a result to the integers of its range, which clamp as its activation does."""
    known = range_of(tensor)
    if known is None or not result.value.dtype.is_float:
        return result
    return emit_rounded(g, result, *known, even=False)


def weight_quantization(tensor: FileTensor) -> Quantization | None:
    """Return the scales of a weight that can be stored as in the file."""
    if tensor.kind != "INT8" or tensor.data is None or len(tensor.shape) < 2:
        return None
    symmetric = not tensor.zero.any() and int(np.min(tensor.data)) > LOW
    return tensor.quantization() if symmetric else None
