"""The order of execution: what shortens lifetimes moves, the rest stays where it was built.

Updates move up to the first place where their gradient exists and nobody reads the old parameter
any more, so that a gradient lives for a moment only. A slice or pick that is all the backward pass
needs of an activation moves up to where the activation is made, so that the rest dies early.
"""

from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.writes import storage
from pockengine.compiler.ops.registry import lookup


def schedule(graph: Graph) -> None:
    """Hoist slices and updates. Leaves: a valid order with updates as early as they can be."""
    order = _hoist_slices(graph)
    graph.nodes[:] = _hoist_updates(graph, order)


def _hoist_slices(graph: Graph) -> list[Node]:
    users, outputs = graph.users(), set(graph.outputs.values())
    slices: dict[Value, list[Node]] = {}
    rest: list[Node] = []
    for node in graph.nodes:
        whole = node.operands[0] if lookup(node.op).slices else None
        # Slicing early lets the whole value die earlier, if its last reader is a slice too.
        if whole and lookup(users[whole][-1].op).slices and whole not in outputs:
            slices.setdefault(node.operands[0], []).append(node)
        else:
            rest.append(node)
    order: list[Node] = []

    def put_slices(value: Value) -> None:
        for node in slices.get(value, []):
            order.append(node)
            put_slices(node.result)  # a slice of a slice moves along

    for value in graph.values():
        if value.node is None:
            put_slices(value)
    for node in rest:
        order.append(node)
        for result in node.results:
            put_slices(result)
    return order


def _hoist_updates(graph: Graph, order: list[Node]) -> list[Node]:
    """Put each update right after its operands and the last other reader of what it writes."""
    pure = [node for node in order if not lookup(node.op).writes]
    made = {value: place for place, node in enumerate(pure) for value in node.results}
    last_read = {storage(v): place for place, node in enumerate(pure) for v in node.operands}
    after: dict[int, list[Node]] = {}
    for update in order:
        if not lookup(update.op).writes:
            continue
        places = [made.get(value, -1) for value in update.operands]
        places += [last_read.get(value, -1) for value in update.operands if graph.param_of(value)]
        after.setdefault(max(places), []).append(update)
        for value in map(storage, update.operands):  # an update of what this one reads stays behind
            last_read[value] = max(*places, last_read.get(value, -1))
    result = list(after.get(-1, []))
    for place, node in enumerate(pure):
        result.append(node)
        result.extend(after.get(place, []))
    return result
