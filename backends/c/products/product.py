"""Plans of matrix products: tile, blocks, split among threads.

Parameters only; gemm.py emits the C.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.products.amx import AmxSpec, choose_amx
from pockengine.backends.c.products.blocks import BlocksSpec
from pockengine.backends.c.products.copies import (
    FEW_ROWS,
    WIDE_LANES,
    block_rows,
    copied_panels,
    pays_to_copy_rows,
)
from pockengine.backends.c.products.product_shape import MatmulShape
from pockengine.backends.c.tile import CoreModel, Tile, machine_of, multiply_cycles, tiles
from pockengine.backends.native.kernel import align
from pockengine.backends.picking import Picker, PlanCandidate, cheapest, picked
from pockengine.compiler.ir import DType
from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.target import ALIGNMENT, Choice
from pockengine.devices.schema import Device

Split = Literal["ROWS", "COLUMNS", "INNER"]

WHOLE_DEPTH, BLOCK_DEPTH = 512, 320
"""An inner dimension up to the first is not blocked; a longer one is, in blocks of the second."""

INNER_RESULTS, INNER_DEPTH = 40_000, 784
"""Small results of long sums split the sum among threads: each reads the rows that it wrote
itself.
"""

STREAMED_ROWS, STREAMED_COLUMNS = 8, 256
"""Up to this many rows of A and from this many columns on, a B that exceeds the second-level cache
is read row by row: 2.0 times as fast as by panels of columns for one row of A on Zen 3, 1.1 to 1.7
times for eight.
"""

NARROW_COLUMNS = 64
"""The same for cores that multiply by a lane, if B exceeds the first-level cache: the model of a
Cortex-A72 computes 5 rows 2.8 to 3.5 times as fast as by panels of columns. Smaller matrices count
too, because a step's weights together exceed the caches.
"""

STREAMED_STEPS, FEWEST_STEPS, STREAMED_FACTORS = 8, 4, 16
"""Rows of B that are read at a time, each a stream to the prefetcher: at most, and at least. The
last number is the vectors of factors that fit into the registers with 4 lanes, where no instruction
multiplies by an operand in memory.
"""

SMALLEST_PAIRED = 16
"""Minimum rows, columns and steps for which rounding operands to bf16 pays."""

SECOND_LEVEL_FLOATS = 6.5
"""Floats per cycle of a panel that exceeds the first-level cache: 2 x 32 tiles took 1.2 times as
long as 6 x 16, whose panels are half as large, on Zen 3.
"""

TRANSPOSE_CYCLES, COPY_CYCLES, SHORT_COPY_CYCLES, READ_CYCLES = 0.5, 0.75, 0.25, 0.5
"""Cycles to transpose one element into a panel; to copy one element of a tile's rows, by a
transposition or (SHORT) as it lies there; and to read one that is in no cache of the core. The last
decides which operand threads share: weight gradients of ViT-tiny take 0.75 times as long by rows as
by columns on Emerald Rapids.
"""


@dataclass(frozen=True)
class ProductPlan:
    """Plan of a product; a block is `depth` steps and `rows` rows of A.

    `copied` panels of B are copied together before use; with `rows_copied`, the rows of a block.
    """

    tile: Tile
    split: Split
    depth: int
    threads: int
    rows: int
    copied: int = 0
    rows_copied: bool = False


@dataclass(frozen=True)
class DotSpec:
    """A product as sums along the inner dimension."""

    product: MatmulShape
    tile: Tile

    kind: ClassVar = "f32"
    form: ClassVar = "dot"
    scratch_bytes: ClassVar = 0


@dataclass(frozen=True)
class TiledSpec:
    """A tiled product; for a product of bf16 pairs, `f32` is the original f32 product.

    In floats: `partial` for unfinished sums (0 if the result holds them), `panel` for each thread's
    panel of a transposed B, `copied_rows` for its rows of A.
    """

    product: MatmulShape
    plan: ProductPlan
    partial: int
    panel: int
    copied_rows: int = 0
    f32: MatmulShape | None = None

    @property
    def kind(self) -> str:
        """The element type that is multiplied."""
        return "bf16" if self.f32 else "f32"

    @property
    def form(self) -> str:
        """The tile in the kernel's name."""
        return str(self.plan.tile)

    @property
    def sums(self) -> int:
        """Floats of all threads' unfinished sums."""
        return self.partial * (self.plan.threads if self.plan.split == "INNER" else 1)

    @property
    def own(self) -> int:
        """Floats of a thread's copies."""
        return self.panel + self.copied_rows

    @property
    def in_place(self) -> bool:
        """Whether B, stored as bf16, consists of pairs already.

        Tensors of whole cache lines alone are sure to be aligned to pairs.
        """
        b = self.f32
        if b is None or b.stored is not DType.BF16 or not b.b_transposed:
            return False
        return b.k % 2 == 0 and 2 * b.n * b.k % ALIGNMENT == 0

    @property
    def operands(self) -> tuple[int, int]:
        """Floats of A and of B as pairs."""
        if self.f32 is None:
            return 0, 0
        m, n, k = self.product.m, self.product.n, self.product.k
        return align(m * k, 16), 0 if self.in_place else align(n * k, 16)

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel."""
        return 4 * (self.sums + self.own * self.plan.threads + sum(self.operands))


@dataclass(frozen=True)
class StreamSpec:
    """A product that reads B once, row by row."""

    product: MatmulShape
    machine: CoreModel

    kind: ClassVar = "f32"
    form: ClassVar = "stream"

    @property
    def steps(self) -> int:
        """Rows of B in a pass."""
        return _streamed_steps(self.product.m, self.machine)

    @property
    def pitch(self) -> int:
        """Floats of a row of sums."""
        return align(self.product.n, 16)

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel."""
        return 4 * self.product.m * self.pitch


ProductSpec = BlocksSpec | DotSpec | StreamSpec | TiledSpec | AmxSpec


def choose_product(
    product: MatmulShape, plain: bool, device: Device, options: KernelOptions
) -> Choice:
    """Choose how to compute a product; `plain`: its result is the node's only one.

    With `bf16` the operands of large products are rounded to bf16; sums are f32. The cycles are the
    plan's, 0 without a plan.
    """
    few = product.m <= FEW_ROWS and product.a_step == 1
    if isinstance(product.stored, Blocks) and product.along_sum and product.batch == 1 and few:
        blocks = BlocksSpec(product, product.stored.bits, machine_of(device).lanes)
        return Choice(blocks.form, scratch_bytes=blocks.scratch_bytes, spec=blocks)
    dots = product.b_transposed and not isinstance(product.stored, Blocks)
    if dots and few:
        return Choice("dot", spec=DotSpec(product, dot_tile(product.m, machine_of(device))))
    if not options.bf16 and _pays_to_stream(product, device):
        stream = StreamSpec(product, machine_of(device))
        return Choice("stream", scratch_bytes=stream.scratch_bytes, spec=stream)
    tiles_of_pairs = choose_amx(product, device) if options.bf16 else None
    if tiles_of_pairs is not None:
        return tiles_of_pairs
    f32, kind = None, "f32"
    smallest = min(product.m, product.n, product.k)
    if options.bf16 and product.batch == 1 and smallest >= SMALLEST_PAIRED:
        f32, product, kind = product, _pairs_of(product), "pairs of bf16"
    candidate = plan_product(product, device, options.pick, kind)
    plan = candidate.plan
    panels = max(plan.copied, int(product.by_panels))
    panel = align(plan.depth * plan.tile.columns * panels, 16)
    rows = align(min(plan.rows, align(product.m, plan.tile.rows)) * plan.depth, 16)
    copied = rows if plan.rows_copied else 0
    spec = TiledSpec(
        product,
        plan,
        _partial_floats(plain, product, plan),
        panel=panel,
        copied_rows=copied,
        f32=f32,
    )
    return Choice(candidate.label, candidate.cycles, spec.scratch_bytes, spec)


def _pays_to_stream(p: MatmulShape, device: Device) -> bool:
    machine = machine_of(device)
    steps = _streamed_steps(p.m, machine)
    few = p.m <= STREAMED_ROWS and FEWEST_STEPS <= steps <= p.k
    plain = p.a_step == 1 and p.batch == 1 and not p.b_transposed
    if isinstance(p.stored, Blocks):
        return False
    columns, cache = STREAMED_COLUMNS, device.cpu.l2_bytes
    if machine.by_lane:
        columns, cache = NARROW_COLUMNS, device.cpu.l1d_bytes
    large = p.n >= columns and 4 * p.k * p.n > cache > 0
    return few and plain and (large or p.stored is not None)


def _streamed_steps(rows: int, machine: CoreModel) -> int:
    if machine.lanes >= WIDE_LANES or machine.by_lane:
        return STREAMED_STEPS
    return min(STREAMED_STEPS, STREAMED_FACTORS // rows)


def dot_tile(m: int, machine: CoreModel) -> Tile:
    """Return the tile of a product with m rows that sums along the inner dimension."""
    rows = min(m, 4)
    fitting = [n for n in (1, 2, 4, 8) if rows * n + n + 1 < machine.registers - 1]
    return Tile(machine.lanes, rows, min(max(fitting), machine.lanes))


def _pairs_of(product: MatmulShape) -> MatmulShape:
    """The product on matrices of pairs: half the steps, dense rows."""
    steps = -(-product.k // 2)
    a_row, a_step = (1, product.m) if product.a_row == 1 else (steps, 1)
    pitch = steps if product.b_transposed else product.n
    return replace(product, k=steps, a_row=a_row, a_step=a_step, b_pitch=pitch, stored=None)


def plan_product(
    product: MatmulShape, device: Device, pick: Picker = cheapest, kind: str = "f32"
) -> PlanCandidate[ProductPlan]:
    """Pick a tile and a split by the estimate of tile.py. `kind` distinguishes products of
    pairs.
    """
    machine, threads = machine_of(device), device.cpu.cores
    splits: tuple[Split, ...] = ("ROWS", "COLUMNS")
    if product.batch == 1 and product.m * product.n <= INNER_RESULTS and product.k >= INNER_DEPTH:
        splits = ("INNER",)
    depth = product.k if product.k <= WHOLE_DEPTH else BLOCK_DEPTH
    candidates = []
    for tile in tiles(machine, product.m, product.n, product.a_row):
        steps = -(-product.k // threads) if splits == ("INNER",) else product.k
        whole = multiply_cycles(
            machine, tile, product.m, columns=product.n, depth=steps, transposed=product.a_row == 1
        )
        if tile.lanes >= WIDE_LANES and 4 * tile.columns * depth > device.cpu.l1d_bytes:
            again = -(-product.m // tile.rows) * product.n * steps
            whole = max(whole, again / SECOND_LEVEL_FLOATS)
        for split in splits:
            columns = product.n // (threads if split == "COLUMNS" else 1)
            rows_copied = split != "INNER" and pays_to_copy_rows(product, tile, columns, device)
            rows = block_rows(product, tile, depth, device=device, rows_copied=rows_copied)
            share = min(rows, -(-product.m // (threads if split == "ROWS" else 1)))
            copied = copied_panels(product, tile, share, depth=depth, device=device)
            plan = ProductPlan(
                tile,
                split,
                depth,
                threads=threads,
                rows=rows,
                copied=copied,
                rows_copied=rows_copied,
            )
            cycles = _cycles(whole, product, plan)
            candidates.append(PlanCandidate(f"{split} {tile.label}", cycles, plan))
    return picked(pick, f"{_key(product)} {kind}", candidates)


def _key(p: MatmulShape) -> str:
    """Everything that plans depend on."""
    batch = f"{p.batch} of " if p.batch > 1 else ""
    a, b = ("t" if flag else "" for flag in (p.a_row == 1, p.b_transposed))
    stored = f" as {p.stored}" if p.stored else ""
    return f"matmul {batch}{p.m}x{p.k}{a} {p.k}x{p.n}{b}{stored}"


def _cycles(whole: float, p: MatmulShape, plan: ProductPlan) -> float:
    """Cycles of the busiest thread; `whole` is for all results, over one thread's steps if
    INNER.
    """
    tile, threads = plan.tile, plan.threads
    panels = p.k * p.n * TRANSPOSE_CYCLES if p.by_panels else 0.0
    copying = SHORT_COPY_CYCLES if p.a_row == 1 and tile.lanes >= WIDE_LANES else COPY_CYCLES
    rows = p.m * p.k * copying if plan.rows_copied else 0.0
    if plan.split == "INNER":
        return whole + panels / threads
    if tile.lanes >= WIDE_LANES:
        panels += p.k * p.n * READ_CYCLES
        rows += p.m * p.k * READ_CYCLES
    by_rows = plan.split == "ROWS"
    size, step = (p.m, tile.rows) if by_rows else (p.n, tile.columns)
    units = -(-size // step)
    share = min(p.batch * size, -(-p.batch * units // threads) * step) / size
    again = max(share, 1.0) if p.batch < threads else share
    if by_rows:
        return whole * share + panels * again + rows * share
    return whole * share + panels * share + rows * again


def _partial_floats(plain: bool, product: MatmulShape, plan: ProductPlan) -> int:
    """Scratch for unfinished sums; without an epilogue the result itself holds them."""
    if plan.split == "INNER":
        return align(product.m * product.n, 16)
    unfinished = product.k > plan.depth and not plain
    return align(product.batch * product.m * product.n, 16) if unfinished else 0
