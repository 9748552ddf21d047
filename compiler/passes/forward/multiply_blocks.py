"""Multiply few rows by weights in blocks as they are stored, without decoding them first.

    x decode(codes, scales)  =  the sum over blocks of  scale (x codes)

A decoded weight has four to eight times the bytes of its codes, and few rows take the time that the
bytes take: a token of a decoder.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.target import Target


@dataclass(frozen=True)
class MultiplyBlocks(Pass):
    """Read codes in products of up to `target.block_rows` rows whose blocks lie along the sum.

    Requires: a graph that is not differentiated.
    """

    target: Target

    def run(self, graph: Graph) -> None:
        rewrite(graph, self._by_codes)

    def _by_codes(self, g: Builder, node: Node) -> Sequence[Value] | None:
        if node.op != "matmul" or not self._few(node):
            return None
        a, weight = node.operands
        decode, transposed = weight.node, node.attrs["transpose_b"]
        if decode is None or decode.op != "decode_blocks" or len(weight.shape) != 2:
            return None
        if decode.attrs["axis"] != (1 if transposed else 0):
            return None
        attrs = {**decode.attrs, "transpose_b": transposed}
        return g.emit("matmul_blocks", a, *decode.operands, **attrs).results

    def _few(self, node: Node) -> bool:
        rows = math.prod(node.result.shape[:-1])
        return rows <= self.target.block_rows and not node.attrs["transpose_a"]
