"""The contract of an artifact's library and its manifest, as a digest.

The library exports the digest that it was generated with (pe_specification in pe_host.h); a session
computes that of the manifest. Another library has another memory layout and must not be called, so
a mix of two artifacts' files is detected here.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pockengine.backends.placement import entry_inputs, entry_outputs, lay_out
from pockengine.compiler.ir import Value
from pockengine.compiler.ir.types import TensorType
from pockengine.compiler.program import Program

ABI = 15
"""Version of the functions that a library exports, and of their arguments."""

Types = Mapping[str, TensorType]


@dataclass(frozen=True)
class Specification:
    """Inputs and outputs of each entry, params in order, and relevant counts."""

    entries: Mapping[str, tuple[Types, Types]]
    params: Types
    params_bytes: int
    frozen_bytes: int
    arena_bytes: int
    threads: int
    micro_batches: int

    def digest(self) -> str:
        """Return the SHA-256 of all fields, as 64 hexadecimal digits."""
        entries = [[name, _rows(ins), _rows(outs)] for name, (ins, outs) in self.entries.items()]
        sizes = [self.params_bytes, self.frozen_bytes, self.arena_bytes]
        sizes += [self.threads, self.micro_batches]
        text = json.dumps([ABI, entries, _rows(self.params), sizes])
        return hashlib.sha256(text.encode()).hexdigest()


def _rows(types: Types) -> Iterable[object]:
    return [[name, type_.dtype.value, list(type_.shape)] for name, type_ in types.items()]


def specification_of(program: Program, threads: int) -> Specification:
    """Return the common specification, for at most `threads` threads."""
    layout = lay_out(program)
    entries = {
        name: (_types(entry_inputs(entry)), _types(entry_outputs(entry)))
        for name, entry in program.entries.items()
    }
    params = {slot.name: slot.type for slot in layout.slots}
    return Specification(
        entries,
        params,
        params_bytes=layout.params_bytes,
        frozen_bytes=layout.frozen_bytes,
        arena_bytes=program.arena_bytes,
        threads=threads,
        micro_batches=program.micro_batches,
    )


def _types(values: list[tuple[str, Value]]) -> dict[str, TensorType]:
    return {name: value.type for name, value in values}
