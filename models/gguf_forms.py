"""Tensor types of GGUF files: plain numbers, and blocks that share scales.

F32, F16, BF16, Q8_0 and Q4_0 are decoded here, as frozen weights use these formats, and MXFP4. The
package `gguf` decodes all others (K-quants, Q5, IQ, ternary) if it is installed.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from pockengine.compiler.ir.blocks import BLOCK, Blocks
from pockengine.compiler.ir.scalars import DType, converted
from pockengine.compiler.ir.types import F32
from pockengine.errors import ImportModelError
from pockengine.extras import missing
from pockengine.models.mxfp4 import E2M1, NBYTES, halved_scales


@dataclass(frozen=True)
class BlockFormat:
    """A tensor type: a block of `group` numbers takes `nbytes` bytes.

    `encode` is None for read-only types. If numbers are whole multiples of the block's scale,
    `scales` returns scales [blocks, 1] of blocks [blocks, nbytes], and `bits` is the size of codes:
    4 or 8.
    """

    name: str
    number: int
    group: int
    nbytes: int
    decode: Callable[[np.ndarray], np.ndarray]
    encode: Callable[[np.ndarray], np.ndarray] | None
    scales: Callable[[np.ndarray], np.ndarray] | None = None
    bits: int | None = None

    def codes(self, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return i8 codes [blocks, group] and f32 scales [blocks] of a type that has a scale."""
        assert self.scales is not None
        scales = self.scales(data.reshape(-1, self.nbytes))
        numbers = self.decode(data).reshape(-1, self.group)
        codes = np.divide(numbers, scales, out=np.zeros_like(numbers), where=scales != 0)
        with np.errstate(invalid="ignore"):
            return np.rint(codes).astype(np.int8), scales[:, 0]


def _f16_at(first: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that reads f16 scales from this byte of each block."""

    def scales(blocks: np.ndarray) -> np.ndarray:
        halves = np.ascontiguousarray(blocks[:, first : first + DType.F16.itemsize])
        return halves.view(np.float16).astype(np.float32)

    return scales


def _plain(name: str, number: int, dtype: DType) -> BlockFormat:
    def decode(data: np.ndarray) -> np.ndarray:
        return converted(data.view(dtype.numpy), F32)

    def encode(numbers: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(converted(numbers, dtype)).view(np.uint8)

    return BlockFormat(name, number, 1, nbytes=dtype.itemsize, decode=decode, encode=encode)


def _blocked(name: str, number: int, bits: int) -> BlockFormat:
    blocks, scale = Blocks(bits, 1), DType.F16.itemsize

    def decode(data: np.ndarray) -> np.ndarray:
        rows = data.reshape(-1, scale + BLOCK * bits // 8)
        codes = np.ascontiguousarray(rows[:, scale:])
        scales = np.ascontiguousarray(rows[:, :scale]).view(np.float16)
        return blocks.decode(codes.view(np.int8) if bits == 8 else codes, scales).reshape(-1)

    def encode(numbers: np.ndarray) -> np.ndarray:
        codes, scales = blocks.encode(numbers.reshape(-1, BLOCK))
        parts = [scales.view(np.uint8), codes.view(np.uint8)]
        return np.concatenate(parts, axis=1).reshape(-1)

    nbytes = scale + BLOCK * bits // 8
    form = BlockFormat(name, number, BLOCK, nbytes=nbytes, decode=decode, encode=encode)
    return replace(form, scales=_f16_at(0), bits=bits)


def _mxfp4(blocks: np.ndarray) -> np.ndarray:
    """Decode a byte E8M0 and 16 bytes of codes: 16 in the low halves, then 16 in the high ones."""
    blocks = blocks.reshape(-1, 1 + NBYTES)
    pairs = blocks[:, 1:]
    codes = E2M1[np.concatenate([pairs & 15, pairs >> 4], axis=1)]
    return (codes * _mxfp4_scales(blocks)).reshape(-1)


def _mxfp4_scales(blocks: np.ndarray) -> np.ndarray:
    return halved_scales(blocks[:, :1])


FORMS = {
    form.number: form
    for form in (
        _plain("F32", 0, DType.F32),
        _plain("F16", 1, DType.F16),
        _blocked("Q4_0", 2, 4),
        _blocked("Q8_0", 8, 8),
        _plain("BF16", 30, DType.BF16),
        BlockFormat(
            "MXFP4",
            39,
            BLOCK,
            nbytes=1 + NBYTES,
            decode=_mxfp4,
            encode=None,
            scales=_mxfp4_scales,
            bits=8,
        ),
    )
}

SCALED = {"Q5_0": (0, 8), "IQ4_NL": (0, 8), "TQ1_0": (52, 4), "TQ2_0": (64, 4)}
"""Byte of the scale and bits of codes of types that the package decodes."""
REWRITTEN = FORMS[8]
"""The type of new numbers for tensors of a read-only type."""


def find_form(number: int) -> BlockFormat | None:
    """Return the type with ggml's number, or None if it is unsupported."""
    return FORMS.get(number) or _packaged(number)


def form_of(number: int, where: str) -> BlockFormat:
    """Return the type of a tensor; ImportModelError names `where` and the fix."""
    form = find_form(number)
    if form is not None:
        return form
    known = ", ".join(form.name for form in FORMS.values())
    fix = "convert the file to one of them"
    if _package() is None:
        fix += ", or install ggml's decoders for further types: pip install 'pockengine[gguf]'"
    raise ImportModelError(f"{where} is of ggml's type {number}, not {known}: {fix}")


def written_form(form: BlockFormat) -> BlockFormat:
    """Return the type in which a tensor's new numbers are written."""
    return form if form.encode is not None else REWRITTEN


@functools.cache
def _package() -> ModuleType | None:
    if missing("gguf"):
        return None
    import gguf

    return gguf


@functools.cache
def _packaged(number: int) -> BlockFormat | None:
    gguf = _package()
    if gguf is None:
        return None
    try:
        kind = gguf.GGMLQuantizationType(number)
        group, nbytes = gguf.GGML_QUANT_SIZES[kind]
        gguf.quants.dequantize(np.zeros(nbytes, np.uint8), kind)
    except (KeyError, NotImplementedError, ValueError):
        return None

    def decode(data: np.ndarray) -> np.ndarray:
        return np.asarray(gguf.quants.dequantize(data, kind), np.float32).reshape(-1)

    form = BlockFormat(kind.name, number, group, nbytes=nbytes, decode=decode, encode=None)
    if kind.name not in SCALED:
        return form
    scale, bits = SCALED[kind.name]
    return replace(form, scales=_f16_at(scale), bits=bits)
