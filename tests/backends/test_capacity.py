"""Capacity of a target's memories: every backend refuses a program that exceeds one."""

from dataclasses import replace
from pathlib import Path

import pytest

import pockengine
from pockengine.backends.capacity import check_capacity, space_bytes
from pockengine.backends.placement import lay_out
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.graph import Space
from pockengine.compiler.options import Training
from pockengine.compiler.target import MemorySpace, Target
from pockengine.devices.schema import find_device
from pockengine.errors import CompileError
from pockengine.tests.backends.every import EVERY_BACKEND
from pockengine.tests.compiler.small_nets import residual_net

HEAD = Training("head-only")
PROGRAM = compile_program(residual_net(), HEAD)
CONSTANT, MUTABLE = (space_bytes(PROGRAM)[space] for space in Space)
IN_RAM = MUTABLE + PROGRAM.arena_bytes


def target_of(flash: int | None, ram: int | None) -> Target:
    """A microcontroller with constant params in flash."""
    spaces = (
        MemorySpace("flash", flash, frozenset({Space.CONSTANT})),
        MemorySpace("ram", ram, frozenset({Space.MUTABLE})),
    )
    return Target(name="mcu", spaces=spaces)


def test_params_and_constants_lie_in_one_space_each() -> None:
    assert CONSTANT > 0
    assert MUTABLE > 0
    layout = lay_out(PROGRAM)
    assert (layout.frozen_bytes, layout.params_bytes) == (CONSTANT, MUTABLE)
    assert sum(slot.type.nbytes for slot in layout.slots if slot.is_frozen) == CONSTANT


def test_what_just_fits_is_accepted() -> None:
    for limits in ((None, None), (CONSTANT, IN_RAM)):
        check_capacity(PROGRAM, target_of(*limits))
    check_capacity(PROGRAM, Target(spaces=(MemorySpace("memory", CONSTANT + IN_RAM),)))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            target_of(CONSTANT - 1, None),
            f"takes {CONSTANT:,} bytes of constant params; mcu has {CONSTANT - 1:,} bytes of "
            "flash: use a smaller model",
        ),
        (
            target_of(None, IN_RAM - 1),
            f"takes {PROGRAM.arena_bytes:,} bytes of arena and {MUTABLE:,} of mutable params; mcu "
            f"has {IN_RAM - 1:,} bytes of ram: use a smaller batch",
        ),
        (
            Target(spaces=(MemorySpace("memory", CONSTANT + IN_RAM - 1),)),
            f"takes {PROGRAM.arena_bytes:,} bytes of arena and {CONSTANT + MUTABLE:,} of params; "
            f"any has {CONSTANT + IN_RAM - 1:,} bytes of memory: use a smaller batch",
        ),
    ],
)
def test_a_space_that_is_too_small_is_named(target: Target, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        check_capacity(PROGRAM, target)
    assert message in str(caught.value)


def test_the_shortage_and_a_fitting_plan_are_reported() -> None:
    needed = PROGRAM.entries["predict"].plan.size
    with pytest.raises(CompileError, match=f"7 bytes are lacking; .* takes {needed:,}, which leav"):
        check_capacity(PROGRAM, target_of(None, IN_RAM - 7))
    with pytest.raises(CompileError, match=f"takes {needed:,}, so that no scheme fits"):
        check_capacity(PROGRAM, target_of(None, needed))


@EVERY_BACKEND
def test_every_backend_refuses_what_its_device_cannot_hold(device: Path | str) -> None:
    small = replace(find_device(device), memory_bytes=1000)
    with pytest.raises(CompileError, match=f"{small.name} has 1,000 bytes of memory"):
        pockengine.compile(residual_net(), None, device=small)


@pytest.mark.parametrize(
    "spaces", [(), (MemorySpace(), MemorySpace()), (MemorySpace(holds=frozenset({Space.MUTABLE})),)]
)
def test_spaces_that_leave_params_without_one_place_are_refused(
    spaces: tuple[MemorySpace, ...],
) -> None:
    with pytest.raises(CompileError, match=r"holds constant params in .* exactly one"):
        Target(name="odd", spaces=spaces)
