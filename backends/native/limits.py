"""Limits of C programs besides device memory: addresses, and kernels' counters."""

from pockengine.backends.capacity import FIX
from pockengine.backends.placement import Layout
from pockengine.compiler.program import Program
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

MOST_ELEMENTS = 2**31 - 1
"""Maximum elements of a tensor: kernels multiply dimensions as C ints."""


def check_limits(program: Program, layout: Layout, device: Device) -> None:
    """Raise CompileError if params and arena exceed the device's address space."""
    arena = program.arena_bytes
    params_bytes = layout.params_bytes + layout.frozen_bytes
    total = params_bytes + arena
    sizes = f"{program.name} takes {arena:,} bytes of arena and {params_bytes:,} of params"
    if total > largest_object(device.address_bits):
        raise CompileError(
            f"{sizes}; a program of {device.name} addresses "
            f"{largest_object(device.address_bits):,} ({device.address_bits} bits): {FIX}"
        )
    for entry in program.entries.values():
        for value in entry.graph.values():
            if value.type.size > MOST_ELEMENTS:
                raise CompileError(
                    f"{value!r} of entry {entry.name} has {value.type.size:,} elements, more than "
                    f"the {MOST_ELEMENTS:,} that kernels count: {FIX}"
                )


def largest_object(address_bits: int) -> int:
    """Maximum bytes of a C object: differences of addresses must be representable."""
    return (1 << (address_bits - 1)) - 1


def static_assertion(program: Program, layout: Layout) -> str:
    """Return a C assertion that sizes fit the machine's addresses."""
    total = layout.params_bytes + layout.frozen_bytes + program.arena_bytes
    return f'_Static_assert({total}ULL <= SIZE_MAX / 2, "the program exceeds the address space");'
