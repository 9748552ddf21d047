"""Find trainings that fit a device, for the error message of a program that does not.

Each suggestion is planned with all its params and its arena; code and tables come on top.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from pockengine.backends.capacity import check_capacity, space_bytes
from pockengine.compiler.ir.graph import Space
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.storage import EXACT
from pockengine.compiler.target import Target
from pockengine.errors import CapacityError, CompileError, SchemeError

SMALLER = ("bias-only", "last-2-blocks", "head-only")
"""Presets to try, besides the requested scheme."""

STORED = ("int8", "int4")
"""Storage formats to try for frozen weights that are too large."""

MARGIN = 64
"""Fraction (1 / MARGIN) of a memory reserved for a session and its variables."""

Plan = Callable[[Training], Program]
"""Compiles with another training, for the same target."""


def check_fits(
    program: Program, target: Target, training: Training, plan: Plan, tell: Callable[[str], None]
) -> None:
    """Raise CapacityError if a program is too large, with alternatives that fit."""
    try:
        check_capacity(program, target)
    except CapacityError as error:
        tell("planning what would fit")
        found = next(_fitting(program, target, training, plan), None)
        text = (
            f"This fits: {found}"
            if found
            else "No preset and no budget that was planned fits either"
        )
        raise CapacityError(f"{error}. {text}") from None


def _fitting(program: Program, target: Target, training: Training, plan: Plan) -> Iterator[str]:
    """Yield alternatives that fit, closest first; memory budgets, which are slow, last."""
    least = "", training, program
    if found := _budgeted(*least, target, plan):
        yield found
    for name, other in _others(program, training):
        made = _planned(plan, other)
        if made is None:
            continue
        if _fits(made, target):
            yield name
        least = name, other, made
    if found := _budgeted(*least, target, plan):
        yield found


def _others(program: Program, training: Training) -> Iterator[tuple[str, Training]]:
    """Yield other trainings, and how a caller writes each."""
    quantized = any(param.quantization is not None for param in program.params.values())
    if training.storage == EXACT and not quantized:
        for kind in STORED:
            storage = replace(EXACT, weights=kind)
            yield f'storage=Storage(weights="{kind}")', replace(training, storage=storage)
    for scheme in SMALLER:
        yield f'scheme="{scheme}"', replace(training, scheme=scheme)


def _budgeted(
    name: str, training: Training, program: Program, target: Target, plan: Plan
) -> str | None:
    """Return the memory budget with which a training fits; None if the arena is not the
    bottleneck.
    """
    budget = _room(program, target)
    if training.memory_budget is not None or not 0 < budget < program.arena_bytes:
        return None
    leaner = _planned(plan, replace(training, memory_budget=budget))
    if leaner is None or not _fits(leaner, target):
        return None
    words = f"memory_budget={budget}"
    return f"{name} with {words}" if name else words


def _planned(plan: Plan, training: Training) -> Program | None:
    """Plan another training; None if the model has no such scheme, or the budget is too small."""
    try:
        return plan(training)
    except (CompileError, SchemeError):
        return None


def _fits(program: Program, target: Target) -> bool:
    try:
        check_capacity(program, target)
    except CapacityError:
        return False
    return True


def _room(program: Program, target: Target) -> int:
    """Return the bytes that params leave for an arena; 0 if the memory is unbounded."""
    params = space_bytes(program)
    space = next(space for space in target.spaces if Space.MUTABLE in space.holds)
    if space.size is None:
        return 0
    return space.size - space.size // MARGIN - sum(params[content] for content in space.holds)
