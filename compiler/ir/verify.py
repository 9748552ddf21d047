"""Graph invariants, one function each. They run after every pass in tests."""

from collections.abc import Callable
from functools import partial

from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.writes import verify_writes
from pockengine.compiler.ops.registry import Types, lookup
from pockengine.errors import GraphError

Check = Callable[[Graph], None]

Inferred = dict[Node, tuple[object, ...]]
"""Nodes whose result types were inferred, with all that these depend on."""


def verify(graph: Graph, inferred: Inferred | None = None) -> None:
    """Raise GraphError at the first broken invariant, naming the node or value.

    With the `inferred` of an earlier call, only the types of nodes that changed since are inferred.
    """
    types = partial(_types_agree, inferred={} if inferred is None else inferred)
    checks: tuple[Check, ...] = (*STRUCTURE, types, *MEANING)
    for check in checks:
        check(graph)


def _names_are_unique(graph: Graph) -> None:
    """Every value has a unique name, and params are filed under theirs."""
    seen: dict[str, Value] = {}
    for value in graph.values():
        if value.name in seen:
            raise GraphError(f"graph {graph.name}: two values are named {value.name!r}")
        seen[value.name] = value
    for name, param in graph.params.items():
        if name != param.value.name or param.value.type != param.contents.type:
            raise GraphError(f"graph {graph.name}: param {name!r} does not match {param.value!r}")


def verify_order(graph: Graph) -> None:
    """Every operand and output is a source or the result of an earlier node."""
    known = graph.sources()
    for node in graph.nodes:
        missing = [operand for operand in node.operands if operand not in known]
        if missing:
            raise GraphError(f"{node}: {missing[0]!r} is used before it is computed")
        known.update(node.results)
    for name, value in graph.outputs.items():
        if value not in known:
            raise GraphError(f"output {name!r} ({value!r}) is never computed")


def _results_point_back(graph: Graph) -> None:
    """A result refers to its node, and nodes share no results."""
    for node in graph.nodes:
        for result in node.results:
            if result.node is not node:
                raise GraphError(f"{node}: its result {result!r} belongs to {result.node}")


def _types_agree(graph: Graph, inferred: Inferred) -> None:
    """Inference reproduces each node's result types."""
    for node in graph.nodes:
        operands = tuple(value.type for value in node.operands)
        results = tuple(value.type for value in node.results)
        attrs = tuple(node.attrs.values())  # compared by identity: they may be arrays
        facts = (node.op, operands, results, *node.attrs, *map(id, attrs))
        if "body" in node.attrs:  # it may have changed in place
            _infer(node, operands, results)
            verify(node.attrs["body"], inferred)
        elif node not in inferred or inferred[node][0] != facts:
            _infer(node, operands, results)
            inferred[node] = facts, attrs  # which keeps each identity unique


def _infer(node: Node, operands: Types, results: Types) -> None:
    """Raise GraphError unless inference from the operands' types gives those of the results."""
    definition = lookup(node.op)
    definition.check_arity(len(operands))
    found = definition.result_types(operands, node.attrs)
    if found != results:
        raise GraphError(f"{node}: its results should be {', '.join(map(str, found))}")


def _constants_have_their_type(graph: Graph) -> None:
    """A constant's array has the dtype and shape of its value."""
    for value, array in graph.constants.items():
        if array.shape != value.shape or array.dtype != value.dtype.numpy:
            raise GraphError(f"constant {value!r} holds {array.dtype}{list(array.shape)}")


def _second_computations_match(graph: Graph) -> None:
    """A node that recomputes another node of the graph has the same op and result types."""
    nodes = set(graph.nodes)
    for node in graph.nodes:
        first = node.recomputes
        if first is None or first not in nodes:
            continue
        types = [[value.type for value in each.results] for each in (first, node)]
        if first.op != node.op or types[0] != types[1]:
            raise GraphError(f"{node}: it does not recompute {first}")


STRUCTURE: tuple[Check, ...] = (
    _names_are_unique,
    verify_order,
    _results_point_back,
)

MEANING: tuple[Check, ...] = (
    _second_computations_match,
    verify_writes,
    _constants_have_their_type,
)
