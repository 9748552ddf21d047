"""Weights that are stored in blocks (`ir/blocks.py`): dequantized, or multiplied as they are.

    decode_blocks  w = decode(codes, scales)
    matmul_blocks  y = a w, or a wᵀ

    codes i8 [..., L, ...], or u8 [..., L / 2, ...] of 4 bits; scales f16 [..., L / 32, ...];
    w f32 [..., L, ...]; a f32 [..., m, k]

Such weights are frozen: there is no gradient. A pass writes `matmul_blocks` into graphs that are
not differentiated.
"""

from collections.abc import Mapping
from typing import Any

from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.graph import Node
from pockengine.compiler.ir.types import F32, DType, TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define, lookup
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


def _product_attrs(attrs: Attrs) -> Attrs:
    return lookup("matmul").complete_attrs({"transpose_b": attrs["transpose_b"]})


def _infer_product(types: Types, attrs: Attrs) -> Types:
    a, codes, scales = types
    if codes.rank != 2 or attrs["axis"] != int(attrs["transpose_b"]):
        raise GraphError(f"matmul_blocks: the blocks of {codes} do not lie along the sum")
    return lookup("matmul").infer((a, *_infer((codes, scales), attrs)), _product_attrs(attrs))


def _eval_product(arrays: Arrays, attrs: Attrs) -> Arrays:
    a, *stored = arrays
    return lookup("matmul").eval((a, *_eval(tuple(stored), attrs)), _product_attrs(attrs))


def _product_cost(node: Node) -> int:
    return node.result.type.size * node.operands[0].shape[-1]


STORAGE = frozenset({DType.I8, DType.U8, DType.F16})

define(
    "decode_blocks",
    "codes scales",
    attrs={"bits": REQUIRED, "axis": REQUIRED},
    infer=_infer,
    eval=_eval,
    storage=STORAGE,
    decodes=True,
)

define(
    "matmul_blocks",
    "a codes scales",
    attrs={"bits": REQUIRED, "axis": REQUIRED, "transpose_b": False},
    infer=_infer_product,
    eval=_eval_product,
    storage=STORAGE,
    cost=_product_cost,
)
