"""Instruction sets as data, for kernels, the C compiler and instruction counting."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Isa:
    """A vector extension for f32 kernels; byte products may use wider vectors.

    There are `registers` vector registers. `by_lane`: a multiply-add can use one lane of a vector
    as a factor; `paired`: one instruction loads or stores two vectors. `latency` is the cycles
    between additions to the same sum. `dot_lanes` are the i32 lanes to which byte products are
    added, `dot_sums` the number of such vectors per register tile; 0 without byte products. A
    machine that lists all `features` in /proc/cpuinfo has it; `flags` are for the C compiler.
    """

    vector_bytes: int
    registers: int
    by_lane: bool = False
    paired: bool = False
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
    "neon": Isa(vector_bytes=16, registers=32, by_lane=True, paired=True, dot_lanes=4, dot_sums=16),
    "hvx": Isa(
        vector_bytes=4,
        registers=16,
        dot_lanes=32,
        dot_sums=24,
        # Swing modulo scheduling takes a third of the compiler's time, and saves 1 % of packets.
        flags=("-mllvm", "-enable-pipeliner=false"),
    ),
    "helium": Isa(vector_bytes=16, registers=10),  # 8, with factors in general registers
    "dsp": Isa(vector_bytes=4, registers=16),
    "simd128": Isa(vector_bytes=16, registers=16),  # WebAssembly; engines on x86 have 16
    "scalar": Isa(vector_bytes=4, registers=16),
}
"""Instruction sets by name in device files."""

ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    "aarch64": ("neon",),
    "arm64": ("neon",),
    "x86_64": ("avx512", "avx2", "sse2"),
    "AMD64": ("avx512", "avx2", "sse2"),
}
"""Extensions by machine name, widest first; other machines are scalar."""


@dataclass(frozen=True)
class Counter:
    """QEMU's instruction-counting program for an architecture, and the emulated CPU."""

    emulator: str
    cpu: str
    unit: str = "instructions"


COUNTERS: Mapping[str, Counter] = {
    "aarch64": Counter("qemu-aarch64", "cortex-a72"),
    "hexagon": Counter("qemu-hexagon", "v67", unit="packets"),
}
"""By architecture; a Hexagon packet is several instructions issued together."""
