"""Choice of a register tile: lanes, rows and vectors of sums.

The estimate is in cycles of one core: each step of a tile costs the larger of its multiply-adds and
its loads, and at least the latency that too few independent sums cannot hide. It was calibrated on
Zen 4; other cores differ in the constants, not in the ranking.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product

from pockengine.devices.isa import ISAS
from pockengine.devices.schema import Device

MAX_ROWS, MAX_VECTORS = 14, 8

TURN_CYCLES = {8: 0.3, 16: 0.3}
"""Additional cycles of each step on x86, by lanes: calibrated by tiles of 6 x 16, which are 4 %
faster than 4 x 16 on Zen 3, and 3 % faster than 3 x 24. With 16 lanes, on Emerald Rapids, all plans
that `pockengine tune` finds for ResNet-50 make a step 2 % faster.
"""

WAYS, WAY_FLOATS = 8, 1024
"""Rows of A whose starts are 4 KiB apart share a set of the first-level cache, which holds
eight.
"""


@dataclass(frozen=True)
class Tile:
    """Rows and vectors of `lanes` floats: `rows` x (`vectors` * `lanes`) sums."""

    lanes: int
    rows: int
    vectors: int

    @property
    def columns(self) -> int:
        """Columns of a whole tile."""
        return self.lanes * self.vectors

    @property
    def label(self) -> str:
        """Rows, vectors and lanes: the tile's unique name, unlike its string."""
        return f"{self.rows}x{self.vectors}x{self.lanes}"

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


@dataclass(frozen=True)
class CoreModel:
    """Parameters of a core for the estimate."""

    lanes: int
    registers: int
    by_lane: bool
    latency: float
    paired: bool

    @property
    def streamed(self) -> int:
        """Lanes of kernels that stream memory: two registers if one instruction moves a pair."""
        return 2 * self.lanes if self.paired else self.lanes

    @property
    def widths(self) -> tuple[int, ...]:
        """Lane counts to try: also half the width of wide vectors."""
        return (16, 8) if self.lanes == 16 else (self.lanes,)


def machine_of(device: Device) -> CoreModel:
    """Describe a device's core."""
    return _machine(device.cpu.isa)


@cache
def _machine(name: str) -> CoreModel:
    isa = ISAS[name]
    lanes = max(4, isa.vector_bytes // 4)
    return CoreModel(lanes, isa.registers, isa.by_lane, latency=isa.latency, paired=isa.paired)


def tiles(machine: CoreModel, rows: int, columns: int, row_stride: int = 1) -> tuple[Tile, ...]:
    """Every tile that fits in registers and is not larger than the matrix.

    `row_stride` is A's, in floats. With multiplication by a lane, one load takes four rows of a
    transposed A (stride 1), but four steps of a single row of a plain A.
    """
    most_rows = min(rows, MAX_ROWS if row_stride % WAY_FLOATS else WAYS)
    most_columns = min(columns, MAX_VECTORS * max(machine.widths))
    return _tiles(machine, most_rows, most_columns, row_stride == 1)


@cache
def _tiles(machine: CoreModel, rows: int, columns: int, transposed: bool) -> tuple[Tile, ...]:
    found = []
    for lanes in machine.widths:
        most = min(MAX_VECTORS, -(-columns // lanes))
        for vectors, count in product(range(1, most + 1), range(1, rows + 1)):
            broadcast = 1
            if machine.by_lane:
                broadcast = -(-count // 4) if transposed else count
            if count * vectors + vectors + broadcast <= machine.registers - 1:
                found.append(Tile(lanes, count, vectors))
    return tuple(found)


@cache
def step_cycles(
    machine: CoreModel, lanes: int, rows: int, vectors: int, transposed: bool = False
) -> float:
    """Cycles of one step of a tile; `transposed`: A's rows have stride 1."""
    # Two vectors of up to 32 bytes per cycle, or one of 64. Half of one takes as long: so it is on
    # Intel's server cores and Zen 5, not on Zen 4.
    width = max(0.5, machine.lanes / 16)
    sums = rows * vectors
    if machine.by_lane:  # two instructions per cycle, one vector loaded
        loads = vectors + rows / 4
        others = _loads(machine, rows, vectors, transposed)
        # With equal instructions, that of fewer bytes.
        return max((sums + others) / 2, loads, machine.latency) + (0 if transposed else loads / 16)
    multiply = sums * width
    loads_ = vectors * width + rows * 0.5
    return max(multiply, loads_, machine.latency) + TURN_CYCLES.get(machine.lanes, 0.1)


def _loads(machine: CoreModel, rows: int, vectors: int, transposed: bool) -> float:
    """Instructions of a step besides multiply-adds, as in gemm_steps_ahead.inc.h.

    One loads eight steps of a row of A where registers hold them, else four. Every eight steps, the
    loop itself takes three.
    """
    if transposed:
        return vectors + rows / 4
    used, at_once = rows * vectors + 2 * vectors, 4
    if used + 2 * rows <= machine.registers - 2:
        at_once, used = 8, used + rows
    ahead = used + rows < machine.registers - (vectors > 2)
    return _row_loads(vectors, ahead) + rows / at_once + 3 / 8


def _row_loads(vectors: int, ahead: bool) -> int:
    """Instructions that load a row of B: one if it is loaded a step ahead, else one for each pair
    of vectors, and one that moves registers.
    """
    return -(-vectors // 2) + 1 if vectors > 4 or not ahead else 1


def multiply_cycles(
    machine: CoreModel, tile: Tile, rows: int, columns: int, depth: int, transposed: bool = False
) -> float:
    """Cycles of a whole product, including partial tiles and writing the results.

    `transposed`: A's rows have stride 1.
    """
    total, width = 0.0, tile.columns
    full_rows, tail_rows = divmod(rows, tile.rows)
    full_columns, tail_columns = divmod(columns, width)
    for row_count, row_tiles in ((tile.rows, full_rows), (tail_rows, int(tail_rows > 0))):
        for column_count, column_tiles in (
            (width, full_columns),
            (tail_columns, int(tail_columns > 0)),
        ):
            count = row_tiles * column_tiles
            if count:
                vectors = -(-column_count // tile.lanes)
                step = step_cycles(machine, tile.lanes, row_count, vectors, transposed=transposed)
                total += count * (step * depth + 10 + 1.5 * row_count * vectors)
    return total
