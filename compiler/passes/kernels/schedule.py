"""Execution order: move nodes that shorten lifetimes, keep the others in place.

Updates move up to the first position where their gradient exists and the old parameter has no more
readers, so a gradient lives only briefly. Shared scalars, such as Adam's bias corrections, come
first: at their original position, after the last gradient, every update would wait for them and
keep its gradient alive. If the old parameter still has readers, the gradient itself is computed
later, if it is larger than the operands whose lifetimes that extends. If the backward pass needs
only a slice or pick of an activation, it moves up to the activation's producer, so that the
activation dies early. A slice of a param or constant stays: moving it would only use more of the
arena.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.writes import storage, written_values
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass


@dataclass(frozen=True)
class Schedule(Pass):
    """Hoist slices, scalars and updates. Leaves: a valid order with updates as early as
    possible.
    """

    def run(self, graph: Graph) -> None:
        order = _hoist_scalars(_hoist_slices(graph))
        graph.nodes[:] = _sink_gradients(graph, _hoist_updates(graph, order))


def _hoist_slices(graph: Graph) -> list[Node]:
    users = graph.users()
    # Outputs stay alive anyway, and params and constants are not in the arena.
    whole_anyway = {*graph.outputs.values(), *graph.sources()} - set(graph.inputs)
    slices: dict[Value, list[Node]] = {}
    others: list[Node] = []
    for node in graph.nodes:
        whole = node.operands[0] if lookup(node.op).slices else None
        # Slicing early ends the whole value's lifetime early, if its last reader is a slice too.
        if whole and lookup(users[whole][-1].op).slices and whole not in whole_anyway:
            slices.setdefault(node.operands[0], []).append(node)
        else:
            others.append(node)
    order: list[Node] = []

    def put_slices(value: Value) -> None:
        for node in slices.get(value, []):
            order.append(node)
            put_slices(node.result)  # a slice of a slice moves along

    for value in graph.values():
        if value.node is None:
            put_slices(value)
    for node in others:
        order.append(node)
        for result in node.results:
            put_slices(result)
    return order


def _hoist_scalars(order: list[Node]) -> list[Node]:
    """Hoist scalars that updates read and that depend on scalars only."""
    made: set[Node] = set()
    for node in order:
        sizes = (value.type.size for value in (*node.operands, *node.results))
        early = all(value.node is None or value.node in made for value in node.operands)
        if early and node.results and all(size == 1 for size in sizes):
            made.add(node)
    needed: set[Node] = set()
    for node in reversed(order):
        if lookup(node.op).writes or node in needed:
            needed.update(made.intersection(v.node for v in node.operands if v.node is not None))
    return [
        *(node for node in order if node in needed),
        *(node for node in order if node not in needed),
    ]


def _hoist_updates(graph: Graph, order: list[Node]) -> list[Node]:
    """Put each update right after its operands and the last other reader of the written param."""
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
        for value in map(storage, update.operands):  # later writers stay after it
            last_read[value] = max(*places, last_read.get(value, -1))
    result = list(after.get(-1, []))
    for place, node in enumerate(pure):
        result.append(node)
        result.extend(after.get(place, []))
    return result


def _sink_gradients(graph: Graph, order: list[Node]) -> list[Node]:
    """Put nodes that only an update reads right before it, if that reduces live bytes.

    For a gradient that is a sum, its summands move too. Readers of a trained param stay: the param
    may be written in between.
    """
    users, outputs = graph.users(), set(graph.outputs.values())
    place = {node: at for at, node in enumerate(order)}
    last = {value: max(place[user] for user in found) for value, found in users.items() if found}
    updates = [node for node in order if lookup(node.op).writes]
    written = {param for update in updates for param in written_values(update)}
    before: dict[Node, list[Node]] = {}

    def sink(values: Iterable[Value], reader: Node, at: int) -> None:
        for gradient in dict.fromkeys(values):
            maker = gradient.node
            alone = len(users[gradient]) == 1 and gradient not in outputs
            if maker is None or len(maker.results) != 1 or not alone:
                continue
            operands = dict.fromkeys(maker.operands)
            early = [v for v in operands if v.node is not None and last[v] < at]
            longer = sum(value.type.nbytes for value in early)
            fixed = any(storage(value) in written for value in operands)
            sinks = longer < gradient.type.nbytes and not fixed
            if sinks:
                before.setdefault(reader, []).append(maker)
            summands = (maker.operands[index] for index in lookup(maker.op).shifts)
            sink(summands, maker, at if sinks else place[maker])

    for update in updates:
        sink(update.operands, update, place[update])
    sunk = {maker for makers in before.values() for maker in makers}
    return [each for node in order if node not in sunk for each in _with_sunk(node, before)]


def _with_sunk(node: Node, before: Mapping[Node, Sequence[Node]]) -> Iterator[Node]:
    """A node, after the nodes that were placed right before it."""
    for maker in before.get(node, ()):
        yield from _with_sunk(maker, before)
    yield node
