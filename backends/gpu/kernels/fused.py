"""The parts of a node: its anchor, the elementwise nodes around it, and its kernel's pointers.

Operands are called x0, x1, ... and results y0, y1, ... by position. A fusion's `writes` are results
that overwrite operands. A single node counts as a fusion of itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pockengine.backends.gpu.expression import emit_nodes
from pockengine.backends.gpu.kernel import Parameter, read, write
from pockengine.backends.gpu.places import Shape, broadcast
from pockengine.backends.gpu.scalars import scalar_of
from pockengine.compiler.ir import Graph, Node, Value
from pockengine.compiler.ops import lookup
from pockengine.errors import CompileError


@dataclass(frozen=True)
class FusedOperands:
    """`pointers` are the names of the operands, `stores` the results with their names, in order.

    `anchor` is None for purely elementwise work, which is all in `before`.
    """

    anchor: Node | None
    before: tuple[Node, ...]
    after: tuple[Node, ...]
    pointers: dict[Value, str]
    stores: tuple[tuple[Value, str], ...]
    parameters: tuple[Parameter, ...]
    body: Graph

    @property
    def operands(self) -> list[str]:
        """Pointers of the anchor's operands; CompileError if one is computed inside the fusion."""
        assert self.anchor is not None
        missing = [value for value in self.anchor.operands if value not in self.pointers]
        if missing:
            raise CompileError(f"{self.anchor}: the GPU backend fuses nothing before it")
        return [self.pointers[value] for value in self.anchor.operands]

    @property
    def title(self) -> str:
        """Up to three distinct ops, for the kernel's name."""
        anchor = [self.anchor] if self.anchor else []
        ops = (node.op for node in (*anchor, *self.before, *self.after))
        return "_".join(list(dict.fromkeys(ops))[:3])


def open_node(node: Node) -> FusedOperands:
    """Split a node into its parts; CompileError for a fusion with more than one anchor."""
    fused = node.op == "fusion"
    body = node.attrs["body"] if fused else Graph(node.op, nodes=[node])
    inputs = list(body.inputs) if fused else list(node.operands)
    anchors = [each for each in body.nodes if not lookup(each.op).elementwise]
    if len(anchors) > 1:
        raise CompileError(f"{node}: a fused kernel needs one anchor, not {len(anchors)}")
    cut = body.nodes.index(anchors[0]) if anchors else len(body.nodes)
    pointers: dict[Value, str] = {}
    for place, value in enumerate(inputs):
        pointers.setdefault(value, f"x{place}")
    outputs = list(body.outputs.values()) if fused else list(node.results)
    names = [f"y{place}" for place in range(len(node.results))]
    writes = node.attrs["writes"] if fused else ()
    reads = [
        (write if place in writes else read)(f"x{place}", value)
        for place, value in enumerate(inputs)
    ]
    written = [write(name, value) for name, value in zip(names, node.results, strict=True)]
    return FusedOperands(
        anchor=anchors[0] if anchors else None,
        before=tuple(body.nodes[:cut]),
        after=tuple(body.nodes[cut + 1 :]),
        pointers=pointers,
        stores=tuple(zip(outputs, [*names, *(f"x{place}" for place in writes)], strict=True)),
        parameters=(*reads, *written),
        body=body,
    )


def compute(
    opened: FusedOperands,
    nodes: Sequence[Node],
    names: dict[Value, str],
    place: Callable[[Value], str],
) -> list[str]:
    """Return statements that load the nodes' operands and compute them; `names` grows by both."""
    computed = {result for node in nodes for result in node.results}
    lines = []
    for value in dict.fromkeys(operand for node in nodes for operand in node.operands):
        if value in names or value in computed or value not in opened.pointers:
            continue
        kind, pointer = scalar_of(value.dtype), opened.pointers[value]
        names[value] = f"v{pointer}"
        load = kind.load.format(pointer, place(value))
        lines.append(f"const {kind.register} v{pointer} = {load};")
    return lines + emit_nodes(nodes, names, opened.body.constants)


def end(opened: FusedOperands, index: str, **results: str) -> list[str]:
    """Return the epilogue's statements at element `index` of the anchor's results, with all stores.

    `results` are the variables of its results, in order.
    """
    anchor = opened.anchor
    assert anchor is not None
    shape = anchor.results[0].shape
    names = dict(zip(anchor.results, results.values(), strict=False))
    lines = compute(opened, opened.after, names, BroadcastIndex(index, shape))
    return ["{", *lines, *store(opened, names, index), "}"]


def store(opened: FusedOperands, names: dict[Value, str], index: str) -> list[str]:
    """Return statements that store all results at an index."""
    for value, _ in opened.stores:
        if value not in names:
            raise CompileError(f"a fusion returns {value!r}, which it does not compute")
    return [
        scalar_of(value.dtype).store.format(pointer, index, names[value])
        for value, pointer in opened.stores
    ]


@dataclass(frozen=True)
class BroadcastIndex:
    """Offset in a broadcast operand of element `index` of `shape`."""

    index: str
    shape: Shape

    def __call__(self, value: Value) -> str:
        """Return the offset as text."""
        return broadcast(self.index, value.shape, self.shape)
