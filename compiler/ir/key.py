"""Keys of kernels: nodes that compute the same, apart from names, have equal keys."""

from collections.abc import Callable, Sequence

from pockengine.compiler.ir.graph import Graph, Node, Value

Key = tuple[object, ...]


def remembered(measure: Callable[[Node], int]) -> Callable[[Node], int]:
    """Memoize a measure of a node's kernel by its key."""
    known: dict[Key, int] = {}

    def again(node: Node) -> int:
        key = node_key(node)
        if key not in known:
            known[key] = measure(node)
        return known[key]

    return again


def node_key(node: Node) -> Key:
    """Return everything that a kernel's cost depends on; names are excluded."""
    attrs = tuple(
        (name, _body_key(value) if isinstance(value, Graph) else repr(value))
        for name, value in sorted(node.attrs.items())
    )
    return (node.op, attrs, _places(node.operands), tuple(value.type for value in node.results))


def _places(values: Sequence[Value]) -> Key:
    """Types of the operands, and which operands are the same value."""
    return tuple((value.type, values.index(value)) for value in values)


def _body_key(body: Graph) -> Key:
    numbers = {value: index for index, value in enumerate(body.values())}
    nodes = tuple(
        (
            node.op,
            repr(sorted(node.attrs.items())),
            tuple(numbers[value] for value in node.operands),
            tuple(value.type for value in node.results),
        )
        for node in body.nodes
    )
    return nodes, tuple(numbers[value] for value in body.outputs.values())
