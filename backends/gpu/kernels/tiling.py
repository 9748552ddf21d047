"""The tiling of a product, by a cost model or by a tuner's measurements.

The model is theoretical: it was not calibrated on a GPU.

A unit (CUDA's multiprocessor) runs as many groups at once as its registers allow, and the others
after them. A group loops over the summed dimension in steps: it waits for its operands, then
multiplies, at the rate of its arithmetic or of shared memory. While one group waits, others
multiply; so a step takes the arithmetic of all resident groups, or the latency of one plus its own
arithmetic. Large tiles read less; small ones occupy all units, as does splitting a sum among
groups, whose parts a second launch adds.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pockengine.backends.picking import Picker, PlanCandidate, cheapest
from pockengine.devices import Gpu

ITEMS = 256
"""Items per group: eight warps."""

WARPS = ITEMS // 32

TEMPLATE, TENSOR_TEMPLATE = "product.inc.h", "product_bf16.inc.h"

SMALLEST = 16
"""Minimum rows, columns and steps for tensor cores: one of their tiles."""

SHORTEST = 256
"""Minimum elements of a part of a sum: shorter parts do not pay for adding them again."""

MOST_PARTS = 64

WAIT_CYCLES = 600.0
"""Assumed cycles that a group waits for operands from memory."""

LAUNCH_SECONDS = 2e-6
"""Assumed seconds of a launch within a graph."""

REGISTERS = 65536
"""Registers of a unit, in CUDA devices from sm_70 on."""

BANKS = 32
"""Numbers of 4 bytes that shared memory moves per cycle."""


@dataclass(frozen=True)
class GpuMachine:
    """Parameters of a GPU for choosing kernels; `bf16_lanes` of 0 disables tensor cores."""

    units: int
    lanes: int
    hertz: float
    bytes_per_cycle: float
    bf16_lanes: int = 0

    def per_byte(self, tensor_cores: bool) -> float:
        """Return the multiply-adds in the time of one byte from memory."""
        lanes = self.bf16_lanes if tensor_cores else self.lanes
        return self.units * lanes / self.bytes_per_cycle


def machine_of(gpu: Gpu, bf16: bool) -> GpuMachine:
    """Return the parameters in a device file; with tensor cores only for bf16."""
    hertz = gpu.mhz * 1e6
    lanes = gpu.bf16_lanes if bf16 else 0
    return GpuMachine(
        gpu.units, gpu.lanes, hertz, bytes_per_cycle=gpu.bandwidth / hertz, bf16_lanes=lanes
    )


@dataclass(frozen=True)
class Tiling:
    """A template and its tile: the macros PE_MR and PE_NR, which give `rows` x `columns`.

    A group sums multiples of `step` products. An item uses at most `registers`; `resident` groups
    fit on a unit.
    """

    template: str
    mr: int
    nr: int
    rows: int
    columns: int
    step: int
    registers: int

    @property
    def resident(self) -> int:
        """Groups that fit on a unit."""
        return REGISTERS // (self.registers * ITEMS)

    def groups(self, sizes: tuple[int, int, int]) -> int:
        """Return the number of tiles of `batches` results of rows x columns."""
        rows, columns, batches = sizes
        return batches * -(-rows // self.rows) * -(-columns // self.columns)

    def step_cycles(self, machine: GpuMachine) -> float:
        """Return the cycles of a step of one group on a unit: its arithmetic, or shared memory."""
        written = (self.rows + self.columns) * self.step
        if self.template == TENSOR_TEMPLATE:
            lanes = machine.bf16_lanes
            reads = self.step // 16 * WARPS * 4 * (self.mr + self.nr)
            moves = reads + written / 2 / BANKS
        else:
            lanes = machine.lanes
            reads = self.step * WARPS * (-(-self.mr // 4) + self.nr)
            moves = reads + written / BANKS
        return max(self.rows * self.columns * self.step / lanes, moves)


@dataclass(frozen=True)
class Tiled:
    """A tiling, and the part of the sum per group."""

    tiling: Tiling
    share: int

    def label(self, depth: int) -> str:
        """Return its name in tables: "f32 128x64 in 2 parts", "bf16 128x128"."""
        kind = "bf16" if self.tiling.template == TENSOR_TEMPLATE else "f32"
        parts = -(-depth // self.share)
        name = f"{kind} {self.tiling.rows}x{self.tiling.columns}"
        return f"{name} in {parts} parts" if parts > 1 else name


F32 = tuple(
    Tiling(
        TEMPLATE,
        mr,
        nr,
        rows=16 * mr,
        columns=16 * nr,
        step=16,
        registers=128 if mr * nr > 16 else 64,
    )
    for mr in (1, 2, 4, 8)
    for nr in (1, 2, 4)
)
BF16 = tuple(
    Tiling(
        TENSOR_TEMPLATE,
        mr,
        nr,
        rows=32 * mr,
        columns=64 * nr,
        step=32,
        registers=128 if mr > 2 else 80,
    )
    for mr, nr in ((4, 2), (2, 2), (2, 1), (1, 1))
)


def choose_tiles(
    sizes: tuple[int, int, int, int],
    machine: GpuMachine,
    pick: Picker = cheapest,
    key: str = "product",
) -> Tiled:
    """Return the picked plan of a product: by default the fastest in the model, the first of equal
    ones.

    `sizes` are its rows, columns, depth and batches. A picker's key also has the operand types.
    """
    rows, columns, depth, batches = sizes
    by_cores = machine.bf16_lanes and min(rows, columns, depth) >= SMALLEST
    results = rows, columns, batches
    plans = [
        Tiled(tiling, share)
        for tiling in (BF16 if by_cores else F32)
        for share in _shares(depth, tiling.step)
    ]
    candidates = [
        PlanCandidate(plan.label(depth), _cycles(plan, results, depth, machine), plan)
        for plan in plans
    ]
    return pick(f"{key} {'bf16' if by_cores else 'f32'}", candidates)


def _shares(depth: int, step: int) -> Iterator[int]:
    """Yield the fractions of a sum per group: all, a half, a quarter."""
    yield depth
    parts = 2
    while parts <= MOST_PARTS and depth // parts >= SHORTEST:
        yield -(-depth // (parts * step)) * step
        parts *= 2


def _cycles(plan: Tiled, sizes: tuple[int, int, int], depth: int, machine: GpuMachine) -> float:
    """Return the cycles of a product: its steps, and adding the parts of split sums."""
    tiling = plan.tiling
    parts = -(-depth // plan.share)
    on_a_unit = -(-tiling.groups(sizes) * parts // machine.units)
    at_once = min(tiling.resident, on_a_unit)
    own = tiling.step_cycles(machine)
    steps = -(-plan.share // tiling.step)
    total = steps * on_a_unit * max(own, (WAIT_CYCLES + own) / at_once)
    if parts == 1:
        return total
    rows, columns, batches = sizes
    moved = 8 * parts * rows * columns * batches
    return total + moved / machine.bytes_per_cycle + LAUNCH_SECONDS * machine.hertz
