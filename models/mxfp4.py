"""MXFP4: blocks of 32 numbers E2M1 share a scale E8M0 (OCP Microscaling Formats 1.0, 5.2 to 5.4).

Numbers are integers of at most 12 times half the scale, so int8 blocks represent them exactly where
f16 has the halved scales, 2^-24 to 2^15. bf16 represents all of them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.scalars import DType
from pockengine.compiler.ir.types import F32, TensorType

BLOCK, NBYTES = 32, 16
"""Numbers of a block, and bytes of their codes."""
E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the number of each code."""
BIAS, NAN = 127, 255
_F16_EXPONENTS = (-24, 15)


def halved_scales(exponents: np.ndarray) -> np.ndarray:
    """Return half of each E8M0 scale as f32; 255 is NaN."""
    scales = np.ldexp(np.float32(1), exponents.astype(np.int32) - (BIAS + 1))
    return np.where(exponents == NAN, np.float32(np.nan), scales)


def scales_of(exponents: Contents) -> Lazy:
    """Return E8M0 scales as f32."""
    if exponents.type.dtype is not DType.U8:
        raise ValueError(f"its scales are {exponents.type}, and E8M0 as u8 is read")
    type_ = TensorType(F32, exponents.type.shape)
    return Lazy(type_, lambda: 2 * halved_scales(exponents.read()), "scales of MXFP8")


def codes_of(pairs: np.ndarray) -> np.ndarray:
    """Return twice the numbers of pairs of codes, the lower one first, along the last axis."""
    codes = E2M1[np.stack([pairs & 15, pairs >> 4], axis=-1)]
    return codes.reshape(*pairs.shape[:-1], 2 * pairs.shape[-1])


def mxfp4(parts: Mapping[str, Contents], settings: Mapping[str, Any]) -> Grid:
    """Experts of gpt-oss: [experts, out, blocks, 16] pairs of codes, the lower one first.

    The weight is [experts, in, out].
    """
    blocks, scales = parts["blocks"], parts["scales"]
    shape = blocks.type.shape
    if len(shape) != 4 or shape[-1] != NBYTES or blocks.type.dtype is not DType.U8:
        raise ValueError(f"its blocks are {blocks.type}, not u8[experts, out, blocks, {NBYTES}]")
    numbers = (*shape[:2], shape[2] * BLOCK)
    return on_exponents(blocks, scales, numbers).transposed((0, 2, 1))


def on_exponents(pairs: Contents, scales: Contents, shape: tuple[int, ...]) -> Grid:
    """Return numbers of this shape; neighbors along the last axis share a scale E8M0."""
    if shape[-1] % BLOCK or scales.type != TensorType(DType.U8, (*shape[:-1], shape[-1] // BLOCK)):
        raise ValueError(f"its blocks are {pairs.type}, with scales {scales.type}")

    def load() -> tuple[np.ndarray, np.ndarray]:
        return codes_of(pairs.read()).reshape(shape), halved_scales(scales.read())

    exponents = scales.read()
    if exponents.size and exponents.max() == NAN:
        raise ValueError(f"its scale at {_first(exponents == NAN)} is NaN")
    least, most = (one + BIAS + 1 for one in _F16_EXPONENTS)
    fits = bool(np.all((exponents >= least) & (exponents <= most)))
    type_ = TensorType(F32, shape)
    return Grid(type_, len(shape) - 1, load, 8 if fits else None, exact=DType.BF16)


def _first(found: np.ndarray) -> list[int]:
    """Return the place of the first true element."""
    return [int(place) for place in np.argwhere(found)[0]]
