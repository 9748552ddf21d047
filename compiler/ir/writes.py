"""Ordering of in-place writes to params: no node may read new contents instead of old ones.

A read of a param means its contents at the start of the entry. This holds for every node, wherever
passes move it, and for the node that writes the param: each param is written at most once. So an
order is correct exactly if no node reads a param, or a view of it, after the node that writes it,
and that node itself reads each element before writing it.
"""

from collections.abc import Set

from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ops.registry import lookup, written_operands
from pockengine.errors import GraphError


def storage(value: Value) -> Value:
    """Return the value in whose memory this one lies: itself, or the source of a view."""
    while value.node is not None and lookup(value.node.op).view:
        value = value.node.operands[0]
    return value


def written_values(node: Node) -> tuple[Value, ...]:
    """The params that a node writes in place."""
    return tuple(node.operands[index] for index in written_operands(node))


def delay_writes(graph: Graph) -> None:
    """Move each write after the last node that reads the param.

    For passes that move or add nodes which read params: those reads mean the old contents.
    """
    last = {storage(v): place for place, node in enumerate(graph.nodes) for v in node.operands}
    places: dict[Node, int] = {}
    for place, node in enumerate(graph.nodes):
        places[node] = max((place, *(last[value] for value in written_values(node))))
        for value in map(storage, node.operands):
            last[value] = max(last[value], places[node])
    own = {node: place for place, node in enumerate(graph.nodes)}
    graph.nodes.sort(key=lambda node: (places[node], places[node] > own[node]))


def verify_writes(graph: Graph) -> None:
    """Raise GraphError for a node that may read a param's new contents; linear in the graph.

    Updates write only params, each once, after every other read, including reads through views.
    """
    written: dict[Value, Node] = {}
    for node in graph.nodes:
        for operand in node.operands if written else ():
            writer = written.get(storage(operand))
            if writer is not None:
                raise GraphError(
                    f"{node} reads {operand!r} after {writer} wrote it, but a step updates a "
                    "buffer last; read it before that layer, or compute the batch's own"
                )
        values = written_values(node)
        for value in values:
            if graph.param_of(value) is None:
                raise GraphError(f"{node} writes {value!r}, which is no param")
            if written.setdefault(value, node) is not node:
                raise GraphError(f"{node} writes {value!r} after {written[value]} did")
        if values:
            _verify_own_reads(node, values)


def verify_entry(graph: Graph) -> None:
    """Raise GraphError as `verify_writes` does, or if an output is a param written here."""
    verify_writes(graph)
    written = {value: node for node in graph.nodes for value in written_values(node)}
    for name, value in graph.outputs.items():
        if storage(value) in written:
            raise GraphError(f"output {name!r} is read after {written[storage(value)]} wrote it")


def _verify_own_reads(node: Node, written: tuple[Value, ...]) -> None:
    """A node may read, of the params `written` by it, only the element that it is writing."""
    if len(set(written)) < len(written):
        raise GraphError(f"{node} writes a param twice")
    if lookup(node.op).pointwise:
        return
    positions = written_operands(node)
    again = {
        place
        for place, operand in enumerate(node.operands)
        if storage(operand) in written and place not in positions
    }
    if node.op == "fusion":
        _verify_body(node, again | set(positions))
    elif again:
        operand = node.operands[min(again)]
        raise GraphError(f"{node} reads {operand!r} while it writes {storage(operand)!r}")


def _verify_body(node: Node, places: Set[int]) -> None:
    """A fusion's reads of params that it writes may only reach elementwise nodes."""
    body: Graph = node.attrs["body"]
    from_written = {value for place, value in enumerate(body.inputs) if place in places}
    shapes = {value.shape for value in list(body.outputs.values())[-len(node.attrs["writes"]) :]}
    for inner in body.nodes:
        read = [value for value in inner.operands if value in from_written]
        if not read:
            continue
        if not lookup(inner.op).elementwise or {value.shape for value in read} != shapes:
            raise GraphError(f"{node}: {inner} reads {read[0]!r} while other elements are written")
        from_written.update(inner.results)
