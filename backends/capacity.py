"""Check that a program fits the memories of its target: params by their space, and the arena.

The space of the mutable params also has the arena. A backend checks its own limits of addresses and
counters when it generates code.
"""

from collections.abc import Mapping

from pockengine.backends.placement import lay_out
from pockengine.compiler.ir.graph import Space
from pockengine.compiler.program import Program
from pockengine.compiler.target import MemorySpace, Target
from pockengine.errors import CapacityError

FIX = "use a smaller batch, train less, or give a memory_budget"
FIX_CONSTANT = "use a smaller model"


def check_capacity(program: Program, target: Target) -> None:
    """Raise CapacityError if a space of the target is smaller than its contents."""
    params = space_bytes(program)
    for space in target.spaces:
        if space.size is None:
            continue
        mutable = Space.MUTABLE in space.holds
        stored = sum(params[content] for content in space.holds)
        lacking = stored + (program.arena_bytes if mutable else 0) - space.size
        if lacking > 0:
            raise CapacityError(
                f"{program.name} takes {_contents(program, space, stored)}; {target.name} has "
                f"{space.size:,} bytes of {space.name}: {FIX if mutable else FIX_CONSTANT}. "
                f"{lacking:,} bytes are lacking{_room(program, space, params) if mutable else ''}"
            )


def _room(program: Program, space: MemorySpace, params: Mapping[Space, int]) -> str:
    """Describe the room for a scheme: a space minus what prediction always needs."""
    entry = program.entries.get("predict")
    if entry is None or space.size is None:
        return ""
    needed = entry.plan.size
    needed += params[Space.CONSTANT] if Space.CONSTANT in space.holds else 0
    if needed >= space.size:
        return f"; prediction alone takes {needed:,}, so that no scheme fits"
    left = space.size - needed
    return (
        f"; prediction alone takes {needed:,}, which leaves {left:,} for what a scheme trains and "
        "its step takes beyond that"
    )


def _contents(program: Program, space: MemorySpace, stored: int) -> str:
    """Describe the contents of a space; params of both kinds are just "params"."""
    kind = "" if len(space.holds) > 1 else f"{next(iter(space.holds)).value} "
    if Space.MUTABLE not in space.holds:
        return f"{stored:,} bytes of {kind}params"
    return f"{program.arena_bytes:,} bytes of arena and {stored:,} of {kind}params"


def space_bytes(program: Program) -> dict[Space, int]:
    """Return the bytes of the params in each space; tensor constants count as constant params."""
    layout = lay_out(program)
    return {Space.CONSTANT: layout.frozen_bytes, Space.MUTABLE: layout.params_bytes}
