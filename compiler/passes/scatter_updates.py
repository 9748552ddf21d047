"""Gradients of embeddings go where they belong: into the rows that were read, and no others.

The gradient of a table has one row for each of its rows, nearly all of them zero. Plain gradient
descent leaves those rows as they are, so the rows that were read are updated in place, and neither
the whole gradient nor a pass over the whole table is needed. Optimisers whose moments or weight
decay move every row (Adam, momentum) keep the whole gradient.
"""

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node
from pockengine.compiler.ir.writes import storage


def scatter_updates(graph: Graph) -> None:
    """Turn `sgd_update` by the gradient of a `take` into `take_update`, where that means the same.

    Requires: updates appended, no fusions. Leaves: the gradients without a reader are gone.
    """
    users = graph.users()
    outputs = set(graph.outputs.values())
    g, order = Builder(graph), []
    gone: set[Node] = set()
    for node in graph.nodes:
        scattered = _scattered(node)
        if scattered is None or len(users[scattered.result]) > 1 or scattered.result in outputs:
            order.append(node)
            continue
        gone.add(scattered)
        param, _, lr = node.operands
        with g.into(order), g.scope(node.scope):
            g.emit("take_update", param, *scattered.operands, lr, axis=scattered.attrs["axis"])
    graph.nodes[:] = [node for node in order if node not in gone]


def _scattered(update: Node) -> Node | None:
    """The `take_dx` that alone makes the gradient of a plain update of a whole param."""
    plain = (
        update.op == "sgd_update"
        and len(update.operands) == 3
        and not update.attrs["weight_decay"]
        and update.attrs["axis"] is None
    )
    maker = update.operands[1].node if plain else None
    if maker is None or maker.op != "take_dx":
        return None
    # Rows are written one by one, so that nothing else of the table may be read meanwhile.
    alone = update.operands[0] not in map(storage, maker.operands)
    return maker if alone else None
