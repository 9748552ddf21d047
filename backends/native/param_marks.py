"""Flags of each param and input, and the order of a param's dimensions in the model.

See pe_tensor in runtime/pe.h.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.controls import RATE, SEED, STEP, is_control
from pockengine.compiler.ir.graph import Param, ParamKind, Space, Value
from pockengine.compiler.program import Program

_CONTROL_FLAGS = {RATE: "PE_RATE", STEP: "PE_STEP", SEED: "PE_SEED"}


@dataclass(frozen=True)
class ParamMarks:
    """Names of pe.h's flags, and the order of a param's dimensions in the model if permuted."""

    flags: tuple[str, ...] = ()
    order: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{' | '.join(self.flags) or '0'}, {{{', '.join(map(str, self.order)) or '0'}}}"


def param_marks(program: Program) -> dict[str, ParamMarks]:
    """Return the marks of all params and constants by name."""
    marks = {name: _marks(param) for name, param in program.params.items()}
    return marks | {name: ParamMarks(("PE_CONSTANT",)) for name in program.constants}


def _marks(param: Param) -> ParamMarks:
    flags = []
    if param.space is Space.MUTABLE:
        flags.append("PE_WRITTEN")
        if param.value.dtype.is_float and param.contents.is_finite():
            flags.append("PE_FINITE")
    if param.kind is ParamKind.OPTIMIZER:
        flags.append("PE_STATE")
    order = () if param.permutation is None else np.argsort(param.permutation).tolist()
    return ParamMarks(tuple(flags), tuple(order))


def input_marks(values: Iterable[tuple[str, Value]]) -> dict[str, ParamMarks]:
    """Return the marks of an entry's control inputs, by name."""
    return {
        name: ParamMarks((_CONTROL_FLAGS[value.name],))
        for name, value in values
        if is_control(value)
    }
