"""Scatter gradients of embeddings directly into the rows that were read.

The gradient of a table is nearly all zero rows. Plain gradient descent leaves those rows unchanged,
so the rows that were read are updated in place, without the dense gradient or a pass over the whole
table. Optimizers whose moments or weight decay move every row (Adam, momentum) keep the dense
gradient. A table that is also read by a product, such as an embedding tied to the head, has two
gradients: rows are added in place to the product's, without a second dense table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ir.writes import storage
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.cleanup.dead_code import DeadCode

FEW = 2
"""Minimum ratio of a table's elements to the added ones for scattering to pay."""


@dataclass(frozen=True)
class ScatterUpdates(Pass):
    """Rewrite readers of a `take`'s gradient to work on the rows that were read.

    `sgd_update` by it becomes `take_update`, if equivalent, and a sum with it becomes `take_add`.
    Requires: updates appended, no fusions. Leaves: none of these dense gradients.
    """

    def run(self, graph: Graph) -> None:
        users = graph.users()
        outputs = set(graph.outputs.values())

        def rule(g: Builder, node: Node) -> Sequence[Value] | None:
            scattered = _scattered(node) or _summand(node)
            if scattered is None or len(users[scattered.result]) > 1 or scattered.result in outputs:
                return None
            first, axis = node.operands[0], scattered.attrs["axis"]
            if node.results:
                dense = node.operands[1] if first is scattered.result else first
                return (g.take_add(dense, *scattered.operands, axis=axis),)
            g.emit("take_update", first, *scattered.operands, node.operands[2], axis=axis)
            return ()

        rewrite(graph, rule)
        DeadCode().run(graph)


def _scattered(update: Node) -> Node | None:
    """The `take_dx` that is the whole gradient of a plain update of a whole param."""
    plain = (
        update.op == "sgd_update"
        and len(update.operands) == 3
        and not update.attrs["weight_decay"]
        and update.attrs["axis"] is None
    )
    maker = update.operands[1].node if plain else None
    if maker is None or maker.op != "take_dx":
        return None
    # Rows are written one by one, so nothing else may read the table in between.
    alone = update.operands[0] not in map(storage, maker.operands)
    return maker if alone else None


def _summand(node: Node) -> Node | None:
    """The `take_dx` of a summand with far more rows than are added."""
    if node.op != "add" or len({value.type for value in (*node.operands, node.result)}) > 1:
        return None
    makers = (value.node for value in reversed(node.operands))
    rows = (maker for maker in makers if maker is not None and maker.op == "take_dx")
    return next((m for m in rows if FEW * m.operands[0].type.size <= m.result.type.size), None)
