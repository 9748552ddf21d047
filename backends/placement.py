"""Offsets of a program's tensors: mutable params, frozen params, and the arena.

Every backend uses this layout of params, so an artifact's weights and memory sizes mean the same
for all. The memory of frozen params is the data of the weights file, byte by byte: a session may
map the file, and a device without files holds these bytes in flash.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from pockengine.backends.barriers import ByteSpan, Touched
from pockengine.compiler.ir import Node, TensorType, Value
from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.graph import ParamKind, Space
from pockengine.compiler.ops.anchors import anchors_of
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.program import Entry, Program
from pockengine.compiler.target import ALIGNMENT, Choice
from pockengine.errors import CompileError

MAX_RANK = 8
"""Dimensions of a param, input or output; PE_MAX_RANK of the C runtime's pe.h."""

ARENA, PARAMS, FROZEN = "arena", "params", "frozen"
"""The memories of values; no entry writes the frozen one."""


@dataclass(frozen=True)
class Place:
    """Offset of a value's first byte in one of the memories."""

    memory: str
    offset: int


Form = tuple[str, Hashable]
"""A prepared form: the name of a tensor, and the key of the form."""


@dataclass(frozen=True)
class Slot:
    """A tensor that persists between runs (weight, state or constant), and its initial contents."""

    name: str
    place: Place
    contents: Contents

    @property
    def type(self) -> TensorType:
        """Type of the tensor."""
        return self.contents.type

    @property
    def is_frozen(self) -> bool:
        """Whether no entry writes it."""
        return self.place.memory == FROZEN


@dataclass(frozen=True)
class Layout:
    """All params and constants of a program in its order, and the bytes of their memories.

    After the params come the `caches` by name, which no file and no table holds, and the `prepared`
    forms of frozen params, by tensor name and key.
    """

    slots: tuple[Slot, ...]
    params_bytes: int
    frozen_bytes: int
    prepared: Mapping[Form, Place] = field(default_factory=dict)
    caches: Mapping[str, Place] = field(default_factory=dict)

    @property
    def places(self) -> dict[str, Place]:
        """Place of each by name, caches among them."""
        return {**{slot.name: slot.place for slot in self.slots}, **self.caches}

    @property
    def in_file(self) -> dict[str, Contents]:
        """Contents by name, in the order of the weights file."""
        frozen = {slot.name: slot.is_frozen for slot in self.slots}
        return _in_file({slot.name: slot.contents for slot in self.slots}, frozen)


def lay_out(program: Program) -> Layout:
    """Place every param and constant: written ones aligned, frozen ones as in the file."""
    caches = {name: p for name, p in program.params.items() if p.kind is ParamKind.CACHE}
    tensors = {name: p.contents for name, p in program.params.items() if name not in caches}
    tensors |= {name: InMemory(data) for name, data in program.constants.items()}
    mutable = {name for name, param in program.params.items() if param.space is not Space.CONSTANT}
    frozen = {name: name not in mutable for name in tensors}
    starts, offset, frozen_bytes = {}, 0, 0
    for name, contents in _in_file(tensors, frozen).items():
        starts[name] = offset
        offset += contents.type.nbytes
        frozen_bytes = offset if frozen[name] else frozen_bytes
    slots, params_bytes = [], 0
    for name, contents in tensors.items():
        place = Place(FROZEN, starts[name]) if frozen[name] else Place(PARAMS, params_bytes)
        slots.append(Slot(name, place, contents))
        if not frozen[name]:
            params_bytes += _aligned(contents.type.nbytes, program.alignment)
    places: dict[str, Place] = {}
    for name, param in caches.items():
        places[name] = Place(PARAMS, params_bytes)
        params_bytes += _aligned(param.value.type.nbytes, program.alignment)
    prepared: dict[Form, Place] = {}
    for form, nbytes in _forms(program):
        if form not in prepared:
            prepared[form] = Place(PARAMS, params_bytes)
            params_bytes += _aligned(nbytes, program.alignment)
    return Layout(tuple(slots), params_bytes, frozen_bytes, prepared, caches=places)


def _aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def _forms(program: Program) -> Iterator[tuple[Form, int]]:
    """Yield the prepared forms that kernels read, and their bytes."""
    for entry in program.entries.values():
        for node, choice in entry.choices.items():
            form = form_of(node, choice, entry)
            if form is not None and choice.prepared is not None:
                yield form, choice.prepared.nbytes


def form_of(node: Node, choice: Choice, entry: Entry) -> Form | None:
    """Return the prepared form that a node's kernel reads, if any."""
    if choice.prepared is None:
        return None
    source = node.operands[choice.prepared.operand]
    return entry.plan.aliases.get(source, source).name, choice.prepared.key


def _in_file(tensors: Mapping[str, Contents], frozen: Mapping[str, bool]) -> dict[str, Contents]:
    """Sort tensors as the weights file has them, which has no gaps.

    Frozen tensors of whole cache lines come first, so each begins at a line. Of the others, wider
    types come first, so each is aligned to its elements.
    """

    def order(name: str) -> tuple[bool, int, bool, bytes]:
        type_ = tensors[name].type
        first = frozen[name] and type_.nbytes % ALIGNMENT == 0
        letters = name.encode(errors="surrogatepass")  # an invalid name is refused elsewhere
        return not first, -type_.dtype.itemsize, not frozen[name], letters

    return {name: tensors[name] for name in sorted(tensors, key=order)}


def kernel_nodes(entry: Entry) -> list[Node]:
    """The nodes of an entry that have a kernel, in order."""
    return [node for node in entry.graph.nodes if not is_alias(node, entry)]


def touched(node: Node, entry: Entry, params: Mapping[str, Place]) -> Touched:
    """The memory that a node's kernel reads and writes; `params` are the places of params."""
    written = {node.operands[index] for index in written_operands(node)}
    reads = [span for v in node.operands for span in _span(v, entry, params)]
    writes = [span for v in (*node.results, *written) for span in _span(v, entry, params)]
    scratch = entry.plan.scratch.get(node)
    if scratch is not None:
        writes.append(ByteSpan(ARENA, scratch.offset, scratch.offset + scratch.size))
    return Touched(reads, writes)


def _span(value: Value, entry: Entry, params: Mapping[str, Place]) -> list[ByteSpan]:
    """Return a value's location; None for scalars, which are inlined in the call."""
    place = _memory_of(value, entry, params)
    if place is None:
        return []
    return [ByteSpan(place.memory, place.offset, place.offset + value.type.nbytes)]


def place_of(value: Value, entry: Entry, params: Mapping[str, Place]) -> Place | np.ndarray:
    """Return the place of a value, or the number of a scalar constant.

    `params` are the places of params by name. CompileError for a value without a place.
    """
    place = _memory_of(value, entry, params)
    if place is not None:
        return place
    data = entry.graph.constants.get(entry.plan.aliases.get(value, value))
    if data is None or data.ndim:
        raise CompileError(f"{value!r} of entry {entry.name} has no place in memory")
    return data


def _memory_of(value: Value, entry: Entry, params: Mapping[str, Place]) -> Place | None:
    value = entry.plan.aliases.get(value, value)
    allocation = entry.plan.values.get(value)
    if allocation is not None:
        return Place(ARENA, allocation.offset)
    return params.get(value.name)


def is_alias(node: Node, entry: Entry) -> bool:
    """Whether a reshape needs no kernel, because its result shares its operand's memory."""
    if node.op != "reshape":
        return False
    (operand,), result = node.operands, node.result
    if result in entry.plan.aliases:
        return True
    mine, other = entry.plan.values.get(result), entry.plan.values.get(operand)
    return mine is not None and other is not None and mine.offset == other.offset


def describe(node: Node) -> str:
    """Describe a kernel call, with the user's names and shapes."""
    op = node.op
    if op == "fusion":
        op = "+".join(inner.op for inner in node.attrs["body"].nodes)
    results = ", ".join(f"{value.name} {value.type}" for value in node.results)
    operands = ", ".join(f"{value.name} {value.type}" for value in node.operands)
    scope = f" in {node.scope}" if node.scope else ""
    return f"{results + ' = ' if results else ''}{op}({operands}){scope}"


def entry_inputs(entry: Entry) -> list[tuple[str, Value]]:
    """Named inputs of an entry, in its graph's order."""
    return [(value.name, value) for value in entry.graph.inputs]


def entry_outputs(entry: Entry) -> list[tuple[str, Value]]:
    """Named outputs of an entry; CompileError for one that is not in the arena."""
    outputs = list(entry.graph.outputs.items())
    for name, value in outputs:
        if value not in entry.plan.values:
            raise CompileError(
                f"output {name} of entry {entry.name} is a param or constant; return a copy of it"
            )
    return outputs


def node_bytes(node: Node) -> int:
    """Return the traffic of a kernel in bytes, with every operand read and every result written
    once.
    """
    return sum(value.type.nbytes for value in (*node.operands, *node.results))


def anchor_op(node: Node) -> str | None:
    """The op that a kernel is built around; None for purely elementwise work."""
    nodes = node.attrs["body"].nodes if node.op == "fusion" else [node]
    return next((inner.op for inner in anchors_of(nodes)), None)
