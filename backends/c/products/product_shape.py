"""The matrices of a product: sizes, strides, and batch mapping."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.compiler.ir import DType, Node
from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ops.blocks import blocks_of


@dataclass(frozen=True)
class BatchStride:
    """One dimension of a batch: matrix i is `i / inner % extent` steps of this many elements
    further.
    """

    inner: int
    extent: int
    step: int


@dataclass(frozen=True)
class MatmulShape:
    """The matrices of a matmul: y (m, n) is the sum over k, `batch` times.

    `a_row` and `a_step` are A's strides between rows and between steps of k. The i-th matrices
    start at offsets by the strides `a_batch` and `b_batch`; without strides all use the same
    matrix. `stored` is the format of a B that is not f32; `b_pitch` counts its numbers.
    """

    m: int
    n: int
    k: int
    a_row: int
    a_step: int
    b_pitch: int
    b_transposed: bool = False
    batch: int = 1
    a_batch: tuple[BatchStride, ...] = ()
    b_batch: tuple[BatchStride, ...] = ()
    stored: DType | Blocks | None = None

    @property
    def by_panels(self) -> bool:
        """Whether panels of B are transposed or decoded before use."""
        return self.b_transposed or self.stored is not None

    @property
    def along_sum(self) -> bool:
        """Whether the blocks of B lie along the inner dimension."""
        return isinstance(self.stored, Blocks) and self.stored.axis == int(self.b_transposed)


def product_of(node: Node, decode: Node | None = None) -> MatmulShape:
    """Read a matmul node's shapes. Batches of rows against one B are one tall matrix.

    `decode` is the node that decodes its B.
    """
    a, b = (operand.shape for operand in node.operands)
    transpose_a, transpose_b = node.attrs["transpose_a"], node.attrs["transpose_b"]
    batches = node.result.shape[:-2]
    m, n = node.result.shape[-2:]
    k = a[-2] if transpose_a else a[-1]
    a_row, a_step = (1, m) if transpose_a else (k, 1)
    if math.prod(b[:-2]) == 1 and not transpose_a and math.prod(a[:-2]) == math.prod(batches):
        m, batches = m * math.prod(batches), ()
    return MatmulShape(
        m=m,
        n=n,
        k=k,
        a_row=a_row,
        a_step=a_step,
        b_pitch=k if transpose_b else n,
        b_transposed=transpose_b,
        batch=math.prod(batches),
        a_batch=_batch_strides(a, batches),
        b_batch=_batch_strides(b, batches),
        stored=_format(decode),
    )


def _format(decode: Node | None) -> DType | Blocks | None:
    if decode is None:
        return None
    return decode.operands[0].dtype if decode.op == "cast" else blocks_of(decode.attrs)


def _batch_strides(operand: Sequence[int], batches: Sequence[int]) -> tuple[BatchStride, ...]:
    """Return the strides of an operand's matrices, indexed by the result's batch."""
    size = operand[-2] * operand[-1]
    own = [1] * (len(batches) - len(operand[:-2])) + list(operand[:-2])
    if math.prod(own) == 1:
        return ()
    if tuple(own) == tuple(batches):
        return (BatchStride(1, math.prod(batches), size),)
    return tuple(
        BatchStride(math.prod(batches[index + 1 :]), extent, size * math.prod(own[index + 1 :]))
        for index, extent in enumerate(own)
        if extent > 1
    )
