"""Products with weights that are stored in fewer bits, in blocks of columns.

    x decode(W)  =  concat over blocks of columns: x decode(W[:, block])

The decoded weight is never materialized. Each column is the same sum as before.
"""

from collections.abc import Set
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.memory.block_bytes import block_bytes
from pockengine.compiler.passes.memory.columns import (
    decoding,
    even_blocks,
    part,
    splits,
    trained_values,
)


@dataclass(frozen=True)
class TileDecoding(Pass):
    """Cut each product whose decoded weight takes more than a sixteenth of the budget, in bytes.

    `written` names the parameters that some entry updates. Requires: a forward graph.
    """

    memory_budget: int
    written: Set[str] = frozenset()

    def run(self, graph: Graph) -> None:
        trained = trained_values(graph, self.written)
        most = block_bytes(self.memory_budget)

        def blocks_of_columns(g: Builder, node: Node) -> tuple[Value] | None:
            if not splits(node, trained) or decoding(node.operands[1]) is None:
                return None
            weight, columns = node.operands[1], node.result.shape[-1]
            blocks = list(even_blocks(columns, most * columns // weight.type.nbytes))
            if len(blocks) < 2:
                return None
            parts = [part(g, node, block) for block in blocks]
            return (g.emit("concat", *parts, axis=len(node.result.shape) - 1).result,)

        rewrite(graph, blocks_of_columns)
