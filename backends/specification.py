"""What an artifact's library and its manifest must agree on, as a digest.

The library exports the digest that it was generated with (pe_specification in pe_host.h), a session
computes that of the manifest. Another library's memory is laid out otherwise, so nothing of it may
be called; files of one artifact with another's manifest are found out here.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pockengine.backends.placement import entry_inputs, entry_outputs, lay_out
from pockengine.compiler.ir import Value
from pockengine.compiler.ir.types import TensorType
from pockengine.compiler.program import Program

ABI = 12
"""Counts the changes to the functions that a library exports, and to what they take."""

Types = Mapping[str, TensorType]


@dataclass(frozen=True)
class Specification:
    """Inputs and outputs of each entry, params in their order, and the counts that matter."""

    entries: Mapping[str, tuple[Types, Types]]
    params: Types
    params_bytes: int
    frozen_bytes: int
    arena_bytes: int
    threads: int
    micro_batches: int

    def digest(self) -> str:
        """Return the SHA-256 of all of it, as 64 hexadecimal digits."""
        entries = [[name, _rows(ins), _rows(outs)] for name, (ins, outs) in self.entries.items()]
        sizes = [self.params_bytes, self.frozen_bytes, self.arena_bytes]
        sizes += [self.threads, self.micro_batches]
        text = json.dumps([ABI, entries, _rows(self.params), sizes])
        return hashlib.sha256(text.encode()).hexdigest()


def _rows(types: Types) -> Iterable[object]:
    return [[name, type_.dtype.value, list(type_.shape)] for name, type_ in types.items()]


def specification_of(program: Program, threads: int) -> Specification:
    """Return what the library and the manifest must agree on, for `threads` threads at most."""
    layout = lay_out(program)
    entries = {
        name: (_types(entry_inputs(entry)), _types(entry_outputs(entry)))
        for name, entry in program.entries.items()
    }
    params = {slot.name: slot.type for slot in layout.slots}
    sizes = (layout.params_bytes, layout.frozen_bytes, program.arena_bytes)
    return Specification(entries, params, *sizes, threads, program.micro_batches)


def _types(values: list[tuple[str, Value]]) -> dict[str, TensorType]:
    return {name: value.type for name, value in values}
