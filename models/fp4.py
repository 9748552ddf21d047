"""FP4 weights of linear layers: pairs of codes E2M1 along the inputs, and a scale for each group.

NVFP4 has scales E4M3 of 16 inputs, and a factor of the whole tensor, of which compressed-tensors
stores the reciprocal (`nvfp4-pack-quantized`) and NVIDIA's ModelOpt the number. MXFP4 of
compressed-tensors (`mxfp4-pack-quantized`) has scales E8M0 of 32 inputs. mxfp4.py has the codes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir.contents import Contents, Floats8, Lazy
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.scalars import DType, converted
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.models.fp8 import finite, scaled
from pockengine.models.mxfp4 import codes_of, on_exponents

Parts = Mapping[str, Contents]
GROUP = 16
"""Inputs of an NVFP4 layer that share a scale."""


def fp4(parts: Parts) -> Grid:
    """Return a layer of compressed-tensors: [out, in / 2] pairs, [out, in / group] scales."""
    pairs, scales = parts["weight_packed"], parts["weight_scale"]
    if scales.type.dtype is DType.U8:
        return on_exponents(pairs, scales, _shape_of(pairs))
    factor = _factor(parts, "weight_global_scale")
    return _nvfp4(pairs, scales, lambda each: each / factor)


def modelopt(parts: Parts, settings: Mapping[str, Any]) -> Grid | Lazy:
    """Return a layer of ModelOpt: NVFP4, or 8-bit floats with scales; a model may have both.

    `pre_quant_scale` belongs to the layer's inputs, which no linear layer here scales.
    """
    if "pre_quant_scale" in parts:
        raise ValueError("its inputs have scales (pre_quant_scale), and none are read")
    weight, scales = parts["weight"], parts["weight_scale"]
    if weight.type.dtype is DType.U8:
        factor = _factor(parts, "weight_scale_2")
        return _nvfp4(weight, scales, lambda each: each * factor)
    return scaled(weight, scales)


def _nvfp4(
    pairs: Contents, scales: Contents, with_factor: Callable[[np.ndarray], np.ndarray]
) -> Grid:
    shape = _shape_of(pairs)
    if not isinstance(scales, Floats8) or scales.type.shape != (shape[0], shape[1] // GROUP):
        raise ValueError(
            f"its pairs are {pairs.type}, with scales {scales.type}: [out, in / {GROUP}] 8-bit "
            "floats are read"
        )

    def load() -> tuple[np.ndarray, np.ndarray]:
        each = with_factor(finite(converted(scales.read(), F32)))
        return codes_of(pairs.read()), each * np.float32(0.5)  # codes are twice the numbers

    return Grid(TensorType(F32, shape), 1, load, None)


def _shape_of(pairs: Contents) -> tuple[int, int]:
    shape = pairs.type.shape
    if len(shape) != 2 or pairs.type.dtype is not DType.U8 or 2 * shape[1] % GROUP:
        raise ValueError(f"its pairs are {pairs.type}, and u8[out, in / 2] are read")
    return shape[0], 2 * shape[1]


def _factor(parts: Parts, name: str) -> np.float32:
    if name not in parts:
        raise ValueError(f"it has no {name}")
    factor = finite(converted(parts[name].read(), F32).reshape(-1))
    if factor.size != 1 or factor[0] <= 0:
        raise ValueError(f"its {name} is {factor.tolist()}, and one positive number is read")
    return np.float32(factor[0])
