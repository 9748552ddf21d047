"""FP8 weights: 8-bit floats with a scale for the tensor, each row, or each block.

`weight_scale_inv`: DeepSeek-V3 (arXiv 2412.19437, 3.3) and transformers' FineGrainedFP8Config.
`weight_scale`: AutoFP8, and "float-quantized" of compressed-tensors. Both multiply.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.compiler.ir.scalars import converted
from pockengine.compiler.ir.types import F32, TensorType

Parts = Mapping[str, Contents]


def fp8(parts: Parts, settings: Mapping[str, Any]) -> Lazy:
    """[out, in] numbers with [out / rows, in / columns] scales; `weight_block_size` names both."""
    scales = parts.get("weight_scale_inv") or parts["weight_scale"]
    return scaled(parts["weight"], scales, settings.get("weight_block_size"))


def scaled(weight: Contents, scales: Contents, block: Any = None) -> Lazy:
    """Return [out, in] numbers times their scales; the last block of an axis may be smaller.

    Without `block`, blocks are of equal size.
    """
    shape, grid = weight.type.shape, scales.type.shape
    if len(shape) == 2 and scales.type.size == 1:
        grid = (1, 1)
    floats = weight.type.dtype.is_float and scales.type.dtype.is_float
    if len(shape) != 2 or len(grid) != 2 or not floats:
        raise ValueError(f"its weight is {weight.type}, with scales {scales.type}")
    sizes = tuple(int(size) for size in block) if block and grid != (1, 1) else _sizes(shape, grid)
    if min(sizes) < 1 or grid != tuple(
        -(-length // size) for length, size in zip(shape, sizes, strict=True)
    ):
        raise ValueError(f"its weight is {weight.type}, with scales {scales.type} of {sizes}")

    def load() -> np.ndarray:
        factors = finite(converted(scales.read(), F32)).reshape(grid)
        rows, columns = (
            np.arange(length) // size for length, size in zip(shape, sizes, strict=True)
        )
        return converted(weight.read(), F32) * factors[np.ix_(rows, columns)]

    return Lazy(TensorType(F32, shape), load, "a weight of FP8")


def finite(scales: np.ndarray) -> np.ndarray:
    """Return the scales; ValueError names the first that is not finite."""
    wrong = np.argwhere(~np.isfinite(scales))
    if len(wrong):
        raise ValueError(f"its scale at {wrong[0].tolist()} is {scales[tuple(wrong[0])]}")
    return scales


def _sizes(shape: tuple[int, ...], grid: tuple[int, ...]) -> tuple[int, ...]:
    if any(count < 1 or length % count for length, count in zip(shape, grid, strict=True)):
        raise ValueError(f"{list(shape)} weights are not divisible into {list(grid)} scales")
    return tuple(length // count for length, count in zip(shape, grid, strict=True))
