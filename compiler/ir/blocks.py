"""Block-quantized weights: blocks of 32 neighboring numbers share a scale.

The numbers equal GGUF's Q8_0 and Q4_0 (ggml's reference quantization); codes and scales are two
tensors here. With 8 bits a number is `scale code`, with 4 bits `scale (code - 8)`; scales are f16.
"""

from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.scalars import DType
from pockengine.compiler.ir.types import Shape, TensorType
from pockengine.errors import GraphError

BLOCK = 32
"""Numbers per scale."""


def scales_name(name: str) -> str:
    """Name of the param with the scales of this param's codes."""
    return f"{name}.scales"


LARGEST = {8: 127, 4: 8}
"""Largest magnitude of a code, by bits."""


@dataclass(frozen=True)
class Blocks:
    """Storage of a tensor: bits of a code, and the axis along which blocks lie.

    8-bit codes are i8 in the tensor's shape. 4-bit codes are u8 with half as many along the axis: a
    block has 16 bytes, with its first 16 codes in the low halves and the others in the high halves.
    """

    bits: int
    axis: int

    def __post_init__(self) -> None:
        if self.bits not in LARGEST or self.axis < 0:
            raise GraphError(f"blocks of {self.bits} bits along axis {self.axis}: bits are 4 or 8")

    def fits(self, shape: Shape) -> bool:
        """Whether the axis has whole blocks only."""
        return self.axis < len(shape) and shape[self.axis] % BLOCK == 0

    def types(self, shape: Shape) -> tuple[TensorType, TensorType]:
        """Types of the codes and the scales; GraphError if blocks do not fit."""
        if not self.fits(shape):
            raise GraphError(f"axis {self.axis} of {list(shape)} does not hold blocks of {BLOCK}")
        size = shape[self.axis]
        codes = self._along(shape, size if self.bits == 8 else size // 2)
        kind = DType.I8 if self.bits == 8 else DType.U8
        return TensorType(kind, codes), TensorType(DType.F16, self._along(shape, size // BLOCK))

    def shape(self, codes: Shape) -> Shape:
        """Shape of the decoded tensor."""
        return self._along(codes, codes[self.axis] * (8 // self.bits))

    def encode(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return codes and scales; GraphError for numbers that are not finite in f16."""
        codes_type, scales_type = self.types(numbers.shape)
        blocks = self._blocked(numbers)
        at = np.abs(blocks).argmax(axis=-2, keepdims=True)
        extreme = np.take_along_axis(blocks, at, axis=-2)
        scales = extreme / np.float32(-8) if self.bits == 4 else np.abs(extreme) / np.float32(127)
        if not (np.abs(scales) <= np.finfo(np.float16).max).all():
            raise GraphError("a weight is not finite, or too large for blocks whose scales are f16")
        inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
        scaled = blocks * inverse
        if self.bits == 8:
            codes = np.rint(scaled).astype(np.int8)
        else:
            codes = _paired(np.minimum(scaled + np.float32(8.5), 15).astype(np.uint8))
        return (
            self._unblocked(codes, codes_type.shape),
            self._unblocked(scales.astype(np.float16), scales_type.shape),
        )

    def packed(self, codes: np.ndarray) -> np.ndarray:
        """Store signed codes of the tensor's shape."""
        if self.bits == 8:
            return np.ascontiguousarray(codes, np.int8)
        pairs = _paired(self._parts((codes + 8).astype(np.uint8), BLOCK))
        return self._unblocked(pairs, self.types(codes.shape)[0].shape)

    def decode(self, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Return the decoded f32 numbers."""
        shape = self.shape(codes.shape)
        blocks = self._parts(codes, BLOCK * self.bits // 8)
        if self.bits == 4:
            blocks = np.concatenate([blocks & 15, blocks >> 4], axis=-2).astype(np.int8) - 8
        scale = self._parts(scales, 1).astype(np.float32)
        return self._unblocked(blocks.astype(np.float32) * scale, shape)

    def _along(self, shape: Shape, size: int) -> Shape:
        return (*shape[: self.axis], size, *shape[self.axis + 1 :])

    def _blocked(self, numbers: np.ndarray) -> np.ndarray:
        return self._parts(np.asarray(numbers, np.float32), BLOCK)

    def _parts(self, array: np.ndarray, size: int) -> np.ndarray:
        """Split the axis into parts: [before, parts, size, after]."""
        before, behind = array.shape[: self.axis], array.shape[self.axis + 1 :]
        rows, columns = int(np.prod(before)), int(np.prod(behind))
        return np.asarray(array).reshape(rows, -1, size, columns)

    def _unblocked(self, array: np.ndarray, shape: Shape) -> np.ndarray:
        return np.ascontiguousarray(array).reshape(shape)


def _paired(codes: np.ndarray) -> np.ndarray:
    """Put the second half of each block of 4-bit codes above the first."""
    low, high = np.split(codes, 2, axis=-2)
    paired: np.ndarray = low | (high << 4)
    return paired
