"""Products with stored weights, for targets that decode them first."""

from collections.abc import Mapping

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.rewrite import Rule


def _matmul_blocks(g: Builder, node: Node) -> tuple[Value, ...]:
    a, codes, scales = node.operands
    weight = g.decode_blocks(codes, scales, bits=node.attrs["bits"], axis=node.attrs["axis"])
    return (g.matmul(a, weight, transpose_b=node.attrs["transpose_b"]),)


RULES: Mapping[str, Rule] = {"matmul_blocks": _matmul_blocks}
