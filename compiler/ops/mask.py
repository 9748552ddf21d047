"""Bit masks: 32 channels in one i32, for activations that the backward pass only compares.

pack_mask bool (..., C) -> i32 (..., ceil(C / 32)); bit b of word w is channel 32 w + b unpack_mask
the inverse; unused bits of the last word are 0
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir.types import BOOL, I32, TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.errors import GraphError

Attrs = Mapping[str, Any]
WORD = 32


def _infer_pack(types: Types, attrs: Attrs) -> Types:
    (mask,) = types
    if mask.dtype is not BOOL or mask.rank < 1:
        raise GraphError(f"pack_mask needs a bool tensor with a last axis, not {mask}")
    return (TensorType(I32, (*mask.shape[:-1], -(-mask.shape[-1] // WORD))),)


def _infer_unpack(types: Types, attrs: Attrs) -> Types:
    (bits,) = types
    channels = attrs["channels"]
    if bits.dtype is not I32 or bits.rank < 1 or bits.shape[-1] != -(-channels // WORD):
        raise GraphError(f"unpack_mask: {bits} does not hold {channels} channels")
    return (TensorType(BOOL, (*bits.shape[:-1], channels)),)


def _eval_pack(arrays: Arrays, attrs: Attrs) -> Arrays:
    (mask,) = arrays
    missing = -mask.shape[-1] % WORD
    padded = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)])
    packed = np.packbits(padded, axis=-1, bitorder="little")
    return (np.ascontiguousarray(packed).view("<i4").astype(np.int32),)


def _eval_unpack(arrays: Arrays, attrs: Attrs) -> Arrays:
    bits = np.ascontiguousarray(arrays[0].astype("<i4")).view(np.uint8)
    unpacked = np.unpackbits(bits, axis=-1, bitorder="little")
    return (unpacked[..., : attrs["channels"]].astype(bool),)


define("pack_mask", "mask", infer=_infer_pack, eval=_eval_pack)
define(
    "unpack_mask",
    "bits",
    attrs={"channels": REQUIRED},
    infer=_infer_unpack,
    eval=_eval_unpack,
)
