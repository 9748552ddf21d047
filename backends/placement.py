"""Where a program's tensors lie, in numbers: params one after the other, the rest in the arena.

Every backend lays params out in this way, so that an artifact's weights and memory sizes mean the
same whatever runs it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pockengine.backends.barriers import Span, Touched
from pockengine.compiler.ir import Node, TensorType, Value
from pockengine.compiler.ir.contents import Contents, Held
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.program import Entry, Program
from pockengine.errors import CompileError

MAX_RANK = 8
"""Dimensions of a param, input or output; PE_MAX_RANK of the C runtime's pe.h."""

ARENA, PARAMS = "arena", "params"
"""The memories that a value may lie in."""


@dataclass(frozen=True)
class Place:
    """A value's first byte in one of the memories."""

    memory: str
    offset: int


@dataclass(frozen=True)
class Slot:
    """One tensor of the param memory: a weight, a state or a constant, with its first contents."""

    name: str
    offset: int
    contents: Contents

    @property
    def type(self) -> TensorType:
        """Type of the tensor."""
        return self.contents.type


def param_slots(program: Program) -> tuple[list[Slot], int]:
    """Where every param and constant lives, in order and aligned, and the bytes of them all."""
    tensors = {name: param.contents for name, param in program.params.items()}
    tensors |= {name: Held(data) for name, data in program.constants.items()}
    slots, offset = [], 0
    for name, contents in tensors.items():
        slots.append(Slot(name, offset, contents))
        offset += -(-contents.type.nbytes // program.alignment) * program.alignment
    return slots, offset


def kernel_nodes(entry: Entry) -> list[Node]:
    """The nodes of an entry that have a kernel, in order."""
    return [node for node in entry.graph.nodes if not is_alias(node, entry)]


def touched(node: Node, entry: Entry, offsets: Mapping[str, int]) -> Touched:
    """The memory that a node's kernel reads and writes."""
    written = {node.operands[index] for index in written_operands(node)}
    reads = [span for v in node.operands for span in _span(v, entry, offsets)]
    writes = [span for v in (*node.results, *written) for span in _span(v, entry, offsets)]
    scratch = entry.plan.scratch.get(node)
    if scratch is not None:
        writes.append(Span(ARENA, scratch.offset, scratch.offset + scratch.size))
    return Touched(reads, writes)


def _span(value: Value, entry: Entry, offsets: Mapping[str, int]) -> list[Span]:
    """Return where a value lives; scalars that are written into the call live nowhere."""
    place = _memory_of(value, entry, offsets)
    if place is None:
        return []
    return [Span(place.memory, place.offset, place.offset + value.type.nbytes)]


def place_of(value: Value, entry: Entry, offsets: Mapping[str, int]) -> Place | np.ndarray:
    """Return where a value lies, or the number that a scalar constant is.

    `offsets` are those of the params by name. CompileError for a value that has no place.
    """
    place = _memory_of(value, entry, offsets)
    if place is not None:
        return place
    data = entry.graph.constants.get(entry.plan.aliases.get(value, value))
    if data is None or data.ndim:
        raise CompileError(f"{value!r} of entry {entry.name} has no place in memory")
    return data


def _memory_of(value: Value, entry: Entry, offsets: Mapping[str, int]) -> Place | None:
    value = entry.plan.aliases.get(value, value)
    allocation = entry.plan.values.get(value)
    if allocation is not None:
        return Place(ARENA, allocation.offset)
    return Place(PARAMS, offsets[value.name]) if value.name in offsets else None


def is_alias(node: Node, entry: Entry) -> bool:
    """Whether a reshape needs no kernel, because its result is where its operand is."""
    if node.op != "reshape":
        return False
    (operand,), result = node.operands, node.result
    if result in entry.plan.aliases:
        return True
    mine, other = entry.plan.values.get(result), entry.plan.values.get(operand)
    return mine is not None and other is not None and mine.offset == other.offset


def describe(node: Node) -> str:
    """What a kernel call computes, with the user's names and shapes."""
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
    """Named outputs of an entry; CompileError for one that lives outside of the arena."""
    outputs = list(entry.graph.outputs.items())
    for name, value in outputs:
        if value not in entry.plan.values:
            raise CompileError(
                f"output {name} of entry {entry.name} is a param or constant; return a copy of it"
            )
    return outputs


def node_bytes(node: Node) -> int:
    """Return the traffic of a kernel, were every operand read and every result written once."""
    return sum(value.type.nbytes for value in (*node.operands, *node.results))
