"""decode_blocks: dequantize a weight that is stored in blocks; see `ir/blocks.py`.

    codes i8 [..., L, ...], or u8 [..., L / 2, ...] of 4 bits; scales f16 [..., L / 32, ...]
    -> f32 [..., L, ...]

Such weights are frozen: there is no gradient.
"""

from collections.abc import Mapping
from typing import Any

from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.types import F32, DType, TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.errors import GraphError

Attrs = Mapping[str, Any]


def blocks_of(attrs: Attrs) -> Blocks:
    """The storage format of the node's operands."""
    return Blocks(attrs["bits"], attrs["axis"])


def _infer(types: Types, attrs: Attrs) -> Types:
    codes, scales = types
    blocks = blocks_of(attrs)
    if blocks.axis >= codes.rank or blocks.types(shape := blocks.shape(codes.shape)) != types:
        raise GraphError(f"decode_blocks: {codes} and {scales} are no {blocks}")
    return (TensorType(F32, shape),)


def _eval(arrays: Arrays, attrs: Attrs) -> Arrays:
    return (blocks_of(attrs).decode(*arrays),)


define(
    "decode_blocks",
    "codes scales",
    attrs={"bits": REQUIRED, "axis": REQUIRED},
    infer=_infer,
    eval=_eval,
    storage=frozenset({DType.I8, DType.U8, DType.F16}),
    decodes=True,
)
