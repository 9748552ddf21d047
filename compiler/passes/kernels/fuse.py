"""Fusion: elementwise nodes join the kernel that produces or consumes their operand.

Five kinds of group grow, in this order:
    joint      anchors of the same operands, such as gradients of one softmax
    epilogue   an anchor (convolution, product), then the elementwise chain that alone reads it
    chain      elementwise nodes of one shape, each reading the one before
    prologue   an elementwise group that alone feeds a reduction, then that reduction
    decoding   the decoding of a stored weight, then the product that alone reads it
Each group becomes one `fusion` node at its last member's position. The backend's `FusionRules`
define which anchors support what.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import F32, I32, DType
from pockengine.compiler.ir.writes import delay_writes
from pockengine.compiler.ops.anchors import anchors_of
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.target import FusionRules, Target

EPILOGUE_DTYPES = (F32, I32, DType.I8)
"""Dtypes of an anchor's results after its epilogue."""

HALVES = (DType.BF16, DType.F16)

MOST_OPERANDS = 12
"""Maximum number of pointers that one kernel reads: beyond this, registers spill."""


@dataclass(eq=False)
class _Group:
    """Nodes that become one kernel, in order; `place` is the position of the last."""

    nodes: list[Node]
    place: int
    anchor: Node | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Iteration space: the shape of the last node's result."""
        return self.nodes[-1].results[0].shape

    def operands(self) -> list[Value]:
        """Values read from outside, in order of first use, without repeats."""
        inside = {result for node in self.nodes for result in node.results}
        read = (operand for node in self.nodes for operand in node.operands)
        return [value for value in dict.fromkeys(read) if value not in inside]


@dataclass(frozen=True)
class Fuse(Pass):
    """Merge elementwise nodes into groups, and rebuild the graph from them.

    Requires: norms decomposed. Leaves: unfused nodes unchanged.
    """

    target: Target

    def run(self, graph: Graph) -> None:
        _Fuser(graph, self.target.fusion).run()


class _Fuser:
    """State of one run: the group of each node, and the readers of each value."""

    def __init__(self, graph: Graph, rules: FusionRules) -> None:
        self.graph = graph
        self.rules = rules
        self.users = graph.users()
        self.outputs = set(graph.outputs.values())
        self.position = {node: place for place, node in enumerate(graph.nodes)}
        self.group_of = {
            node: _Group([node], place, None if _is_elementwise(node) else node)
            for place, node in enumerate(graph.nodes)
        }

    def run(self) -> None:
        self._join_alike()
        for node in self.graph.nodes:
            if node.op in self.rules.epilogue or self._sums_integers(node):
                self._grow_epilogue(self.group_of[node])
        for node in self.graph.nodes:
            if _is_elementwise(node) and self.group_of[node].anchor is None:
                self._join_producers(node)
        for node in self.graph.nodes:
            if node.op in self.rules.prologue:
                self._take_prologue(node)
        for node in self.graph.nodes:
            if node.op in self.rules.decoding:
                self._take_decoding(node)
        self._rebuild()

    def _join_alike(self) -> None:
        """Put joint nodes of the same operands together, at the position of the first."""
        first: dict[Hashable, _Group] = {}
        for node in self.graph.nodes:
            if node.op in self.rules.joint:
                key = (node.operands, tuple(sorted(node.attrs.items())))
                group = first.setdefault(key, self.group_of[node])
                if group is not self.group_of[node]:
                    group.nodes.append(node)
                    self.group_of[node] = group

    def _sums_integers(self, node: Node) -> bool:
        """Whether a gradient's kernel takes an epilogue: integer sums need rescaling."""
        return node.op in self.rules.update and any(v.dtype is DType.I8 for v in node.operands)

    def _grow_epilogue(self, group: _Group) -> None:
        """Add the only reader of the group's result for as long as it is elementwise."""
        while True:
            result = group.nodes[-1].results[0]
            readers = self.users.get(result, [])
            if len(readers) != 1 or result in self.outputs:
                return
            reader = readers[0]
            # A sum of two products joins the first: a kernel has only one anchor.
            free = _is_elementwise(reader) and self.group_of[reader].anchor is None
            fits = free and reader.result.shape == result.shape
            if not fits or reader.result.dtype not in EPILOGUE_DTYPES:
                return
            chain = [*self._private_producers(reader, group), reader]
            if not all(_row_like(v, result.shape) for n in chain for v in n.operands):
                return
            operands = _Group([*group.nodes, *chain], 0).operands()
            if len(operands) > MOST_OPERANDS or self._waits(group, operands, result):
                return
            for node in chain:
                self._move(node, group)

    def _waits(self, group: _Group, operands: list[Value], result: Value) -> bool:
        """Whether the anchor would be delayed until an operand as large as its result exists.

        A sum of two products then joins the later one. But an anchor whose own operands are smaller
        than its result may be delayed: computing it late saves memory.
        """
        anchor = group.anchor
        assert anchor is not None
        operand_bytes = sum(
            value.type.nbytes for value in anchor.operands if value.node is not None
        )
        start = self.position[anchor]
        large = (value.node for value in operands if value.shape == result.shape)
        late = any(node is not None and self.position[node] > start for node in large)
        return late and operand_bytes > result.type.nbytes

    def _private_producers(self, reader: Node, group: _Group) -> list[Node]:
        """Elementwise nodes of the same shape read only by `reader` or by one of them, in order."""
        taken = {reader}
        for node in _ancestors(reader, self._is_free_elementwise):
            readers = self.users.get(node.result, [])
            private = node.result not in self.outputs and all(user in taken for user in readers)
            if private and node.result.shape == reader.result.shape:
                taken.add(node)
        taken -= {reader, *group.nodes}
        return sorted(taken, key=self.position.__getitem__)

    def _is_free_elementwise(self, node: Node) -> bool:
        group = self.group_of[node]
        return _is_elementwise(node) and group.anchor is None and len(group.nodes) == 1

    def _join_producers(self, node: Node) -> None:
        """Merge the elementwise groups that compute this node's operands with it, if legal."""
        for operand in node.operands:
            producer = operand.node
            if producer is None or not _is_elementwise(producer) or _is_saved_rounded(operand):
                continue
            group = self.group_of[producer]
            mine = self.group_of[node]
            if group is not mine and group.anchor is None and self._may_join(group, mine):
                for member in list(mine.nodes):
                    self._move(member, group)
                group.nodes.sort(key=self.position.__getitem__)

    def _may_join(self, group: _Group, later: _Group) -> bool:
        """Whether moving `group` down to `later` passes none of its readers."""
        if group.shape != later.shape or group.place > later.place:
            return False
        if len(_Group([*group.nodes, *later.nodes], 0).operands()) > MOST_OPERANDS:
            return False
        inside = {*group.nodes, *later.nodes}
        readers = (user for n in group.nodes for user in self.users.get(n.result, []))
        return all(n in inside or self.group_of[n].place > later.place for n in readers)

    def _take_prologue(self, node: Node) -> None:
        """Pull in the elementwise group that only this reduction reads."""
        if not node.operands[0].dtype.is_float:
            return
        for index in self.rules.prologue[node.op]:
            value = node.operands[index]
            producer = value.node
            if producer is None or value in self.outputs or not _is_elementwise(producer):
                continue
            source, sink = self.group_of[producer], self.group_of[node]
            outside = {
                result
                for member in source.nodes
                for result in member.results
                if result in self.outputs
                or any(user not in source.nodes for user in self.users.get(result, []))
            }
            alone = outside == {value} and self.users[value] == [node]
            if alone and source.anchor is None and source.shape == node.operands[0].shape:
                sink.nodes[:0] = source.nodes
                for member in source.nodes:
                    self.group_of[member] = sink

    def _take_decoding(self, node: Node) -> None:
        """Pull in the decoding of this product's weight, a matrix, if nothing else reads it."""
        layer = lookup(node.op).layer
        assert layer is not None
        weight = node.operands[layer.weight]
        decode, group = weight.node, self.group_of[node]
        alone = self.users[weight] == [node] and weight not in self.outputs
        if decode is not None and _decodes_floats(decode) and alone and len(weight.shape) == 2:
            group.nodes.insert(0, decode)
            self.group_of[decode] = group

    def _move(self, node: Node, group: _Group) -> None:
        group.nodes.append(node)
        group.place = max(group.place, self.group_of[node].place)
        self.group_of[node] = group

    def _rebuild(self) -> None:
        groups = dict.fromkeys(self.group_of[node] for node in self.graph.nodes)
        ordered = sorted(groups, key=lambda group: group.place)
        self.graph.nodes[:] = [self._emit(group) for group in ordered]
        delay_writes(self.graph)

    def _emit(self, group: _Group) -> Node:
        if len(group.nodes) == 1:
            return group.nodes[0]
        inside = set(group.nodes)
        results = [
            result
            for node in group.nodes
            for result in node.results
            if result in self.outputs
            or any(user not in inside for user in self.users.get(result, []))
            or (node is group.anchor and len(node.results) > 1)
        ]
        return fusion_node(self.graph, group.nodes, group.operands(), results)


def fusion_node(
    graph: Graph, nodes: list[Node], operands: list[Value], results: list[Value]
) -> Node:
    """Build a fusion node of `nodes` that reads `operands` and takes over `results`."""
    anchor = [nodes[-1], *anchors_of(nodes)[:1]][-1]
    body = Graph(anchor.op)
    g = Builder(body)
    inner: dict[Value, Value] = {}
    outer = []
    for value in operands:
        data = graph.constants.get(value)
        if data is not None and data.ndim == 0:
            inner[value] = g.constant(data, "c")
        else:
            inner[value] = g.input(value.name, value.type)
            outer.append(value)
    for node in nodes:
        copy = g.repeat(node, tuple(inner[value] for value in node.operands))
        for old, new in zip(node.results, copy.results, strict=True):
            inner[old] = new
    for result in results:
        g.output(result.name, inner[result])
    attrs = {"body": body, "writes": ()}
    node = Node("fusion", tuple(outer), tuple(results), attrs=attrs, scope=anchor.scope)
    for result in results:
        result.node = node
    return node


def _is_elementwise(node: Node) -> bool:
    return lookup(node.op).elementwise


def _decodes_floats(node: Node) -> bool:
    """Whether it decodes blocks, or widens numbers of 16 bits to f32."""
    widens = node.op == "cast" and node.result.dtype is F32
    return node.op == "decode_blocks" or (widens and node.operands[0].dtype in HALVES)


def _is_saved_rounded(value: Value) -> bool:
    """Whether it was rounded to save memory while it waits: its producer must not move later."""
    return value.dtype.is_float and not value.dtype.computed


def _row_like(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether an epilogue can read it: full shape, a vector over channels, or a scalar."""
    return value.shape in (shape, shape[-1:], ()) or value.type.size == 1


def _ancestors(node: Node, keep: Callable[[Node], bool]) -> Iterator[Node]:
    """Yield producers of a node's operands, nearest first, through nodes that `keep` accepts."""
    pending = [value.node for value in node.operands if not _is_saved_rounded(value)]
    seen: set[Node] = set()
    while pending:
        producer = pending.pop(0)
        if producer is None or producer in seen or not keep(producer):
            continue
        seen.add(producer)
        yield producer
        pending.extend(value.node for value in producer.operands if not _is_saved_rounded(value))
