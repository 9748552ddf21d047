"""Quantized numbers of a model: real numbers between a `quantize` and a `dequantize`.

The passes of `compiler/passes/integers/` lower the ops between them to integer arithmetic.
"""

import math

import numpy as np

from pockengine.compiler.ir import Builder
from pockengine.compiler.ops import lookup
from pockengine.frontends.layout import Tensor

LOW, HIGH = -128, 127


def rounded(
    g: Builder,
    x: Tensor,
    scale: float,
    zero: int,
    *,
    even: bool,
    limits: tuple[int, int] = (LOW, HIGH),
) -> Tensor:
    """Round to i8 of a range within `limits`, and back; a clamp before it becomes such limits.

    A limit between two integers goes to the `even` one, or away from zero.
    """
    value, (low, high) = x.value, limits
    node = value.node
    clamps = None if node is None else lookup(node.op).clamps
    if node is not None and clamps is not None:
        (value,) = node.operands
        places = (_place(limit, scale, zero, even) for limit in clamps(node.attrs))
        low, high = (int(np.clip(place, *limits)) for place in places)
    q = g.quantize(value, g.scalar(scale), zero=zero, low=low, high=high)
    return Tensor(g.dequantize(q, g.scalar(scale), zero=zero), x.layout)


def clamped(g: Builder, x: Tensor, scale: float, zero: int) -> Tensor:
    """Clamp to the range of the int8 quantization, without rounding."""
    least, most = ((limit - zero) * scale for limit in (LOW, HIGH))
    return Tensor(g.hardtanh(x.value, min=least, max=most), x.layout)


def _place(real: float, scale: float, zero: int, even: bool) -> int:
    """Return the integer of a limit."""
    if math.isinf(real):
        return LOW if real < 0 else HIGH
    if even:
        return zero + int(np.rint(np.float32(real) / np.float32(scale)))
    return zero + int(math.copysign(math.floor(abs(real) / scale + 0.5), real))
