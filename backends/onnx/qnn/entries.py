"""Split a training step: the HTP's part, and the updates, which the CPU computes in f32.

A 16-bit weight would not change: a step is smaller than the spacing of such numbers. Remainders and
states would lose their purpose as well.
"""

from collections.abc import Iterator
from dataclasses import replace

from pockengine.backends.onnx.bindings import CUT, update_name
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.graph import Graph, Value
from pockengine.compiler.ops.registry import node_cost, written_operands
from pockengine.compiler.program import Entry, Program


def split(program: Program) -> Program:
    """Return the program with each entry's updates as a separate entry, named by `update_name`."""
    entries = (part for entry in program.entries.values() for part in _parts(entry))
    return replace(program, entries={part.name: part for part in entries})


def _parts(entry: Entry) -> Iterator[Entry]:
    """Yield an entry's parts in execution order, except empty ones."""
    graph = clone(entry.graph)
    update = _updates(graph)
    others = [node for node in graph.nodes if node not in update]
    if not update:
        yield entry
        return
    made = {value for node in others for value in node.results}
    read = dict.fromkeys(value for node in update for value in node.operands)
    cut = [value for value in read if value in made]
    if others:
        yield replace(entry, graph=_without(graph, update, cut))
    yield replace(entry, name=update_name(entry.name), graph=_alone(entry.graph, cut))


def _updates(graph: Graph) -> set[Node]:
    """Return the nodes after the last product that only new contents depend on."""
    users, results = graph.users(), set(graph.outputs.values())
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        readers = [user for value in node.results for user in users.get(value, ())]
        inside = all(user in found for user in readers) and results.isdisjoint(node.results)
        if inside and node_cost(node) == 0 and (readers or written_operands(node)):
            found.add(node)
    return found


def _without(graph: Graph, update: set[Node], cut: list[Value]) -> Graph:
    """Return the graph without its updates, with their operands as outputs."""
    graph.nodes = [node for node in graph.nodes if node not in update]
    graph.outputs |= {CUT + value.name: value for value in cut}
    return _with_inputs_that_are_read(graph)


def _alone(graph: Graph, cut: list[Value]) -> Graph:
    """Return a copy with only the updates, and their operands as inputs."""
    graph = clone(graph)
    update, names = _updates(graph), {value.name for value in cut}
    others = [node for node in graph.nodes if node not in update]
    for value in (value for node in others for value in node.results if value.name in names):
        value.name, value.node = CUT + value.name, None
        graph.inputs.append(value)
    graph.nodes = [node for node in graph.nodes if node in update]
    graph.outputs = {} if others else graph.outputs
    return _with_inputs_that_are_read(graph)


def _with_inputs_that_are_read(graph: Graph) -> Graph:
    read = {*graph.users(), *graph.outputs.values()}
    graph.inputs = [value for value in graph.inputs if value in read]
    return graph
