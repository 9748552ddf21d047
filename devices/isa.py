"""Instruction sets as data: what kernels, the C compiler and counting need to know."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Isa:
    """A vector extension as kernels of f32 see it; products of bytes may have wider vectors.

    `registers` hold a vector each. `by_lane` says that a multiply-add takes one lane of a vector as
    a factor; `latency` is in cycles until a sum can be added to again. `dot_lanes` are the i32
    lanes to which products of bytes are added, `dot_sums` how many vectors of them a tile keeps in
    registers; 0 where nothing multiplies bytes. A machine that lists all `features` in
    /proc/cpuinfo has it; `flags` are for the C compiler.
    """

    vector_bytes: int
    registers: int
    by_lane: bool = False
    latency: float = 4.0
    dot_lanes: int = 0
    dot_sums: int = 0
    features: frozenset[str] = frozenset()
    flags: tuple[str, ...] = ()


ISAS: Mapping[str, Isa] = {
    "avx512": Isa(
        vector_bytes=64,
        registers=32,
        dot_lanes=16,
        dot_sums=24,
        features=frozenset({"avx512f", "avx512vl", "avx512dq", "avx512bw"}),
        flags=("-mprefer-vector-width=512",),
    ),
    "avx2": Isa(
        vector_bytes=32,
        registers=16,
        dot_lanes=8,
        dot_sums=8,
        features=frozenset({"avx2", "fma"}),
    ),
    "sse2": Isa(vector_bytes=16, registers=16),
    "neon": Isa(vector_bytes=16, registers=32, by_lane=True, dot_lanes=4, dot_sums=16),
    "hvx": Isa(
        vector_bytes=4,
        registers=16,
        dot_lanes=32,
        dot_sums=24,
        # Swing modulo scheduling takes a third of the compiler's time, and saves 1 % of packets.
        flags=("-mllvm", "-enable-pipeliner=false"),
    ),
    "helium": Isa(vector_bytes=16, registers=10),  # 8, and factors lie in general registers
    "dsp": Isa(vector_bytes=4, registers=16),
    "scalar": Isa(vector_bytes=4, registers=16),
}
"""By the names that device files use."""

ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    "aarch64": ("neon",),
    "arm64": ("neon",),
    "x86_64": ("avx512", "avx2", "sse2"),
    "AMD64": ("avx512", "avx2", "sse2"),
}
"""Extensions by what a system calls its machine, the widest first; others are scalar."""


@dataclass(frozen=True)
class Counter:
    """Which of QEMU's programs counts what an architecture executes, and the CPU that it plays."""

    emulator: str
    cpu: str
    unit: str = "instructions"


COUNTERS: Mapping[str, Counter] = {
    "aarch64": Counter("qemu-aarch64", "cortex-a72"),
    "hexagon": Counter("qemu-hexagon", "v67", unit="packets"),
}
"""By architecture; a packet of Hexagon's is several instructions that start together."""
