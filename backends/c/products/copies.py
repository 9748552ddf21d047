"""What of a product's operands is copied, and in which blocks, so that it stays in caches."""

import math

from pockengine.backends.c.products.product_shape import MatmulShape
from pockengine.backends.c.tile import Tile
from pockengine.backends.native.kernel import align
from pockengine.devices.schema import Device

FEW_ROWS = 8
"""Up to this many rows of A, transposing or decoding panels of B costs more than sums along the
inner dimension, or of a block's codes.
"""

LONG_BLOCK = 384
"""Minimum rows of a block that hide the transposition of a panel: 4 % of their products."""

WIDE_LANES, LONG_COPY = 8, 4
"""Minimum vector width and number of row tiles for copying a panel whose rows share too few
cache sets: 1.2 times as fast with rows of 2,048 floats, which all share one.
"""

SHORT_COPY, COPIED_PANELS = 2, 4
"""Minimum number of row tiles for copying panels to a narrow core, whose first-level cache has few
ways, and how many are copied together: whole lines are read, in order. The model of a Cortex-A72
gives the 1x1 convolutions of MobileNetV2 1.3 times the speed, ViT-tiny's products 1.1 times that of
copying one panel.
"""

FAR_STEP, FEWEST_COLUMNS, COPIED_TILES = 256, 64, 8
"""Minimum floats between the steps of a transposed A for copying the rows of a tile, the columns of
B that pay for it on a wide core, and the tiles of a block that a narrow core copies: the model of a
Cortex-A72 gives the largest weight gradient of LLaMA 15M on 64 tokens (32,000 x 288) 1.6 times the
speed.
"""

MANY_VECTORS, COPIED_BLOCK = 32, 512
"""Minimum vectors of B for copying a tile's rows although each row is contiguous: 1.2 times as
fast at 256 vectors on Zen 3, 1.05 at 32, no faster at 16; not measured with vectors of 16 lanes.
The rows of a block are then read in order and need not fit in a second-level cache; the second
number is their maximum.
"""

SETS, WAYS, LINE_FLOATS = 64, 8, 16
"""Geometry of a first-level cache."""


def copied_panels(p: MatmulShape, tile: Tile, rows: int, depth: int, device: Device) -> int:
    """Return how many panels to copy together: 0 unless they exceed their cache sets and are used
    for many rows.
    """
    rows = min(rows, p.m)
    if p.by_panels:
        return 0
    if tile.lanes >= WIDE_LANES:
        return int(_collides(p.b_pitch, tile, depth) and rows >= LONG_COPY * tile.rows)
    apart = p.n > tile.columns and not _stays(p, depth, device)
    pays = _has_cache(device) and apart and rows >= SHORT_COPY * tile.rows
    return min(COPIED_PANELS, -(-p.n // tile.columns)) if pays else 0


def _has_cache(device: Device) -> bool:
    """Whether a narrow core has a cache that is worth memory: those with an operating system."""
    return device.cpu.l1d_bytes > 0 and not device.freestanding


def _stays(p: MatmulShape, depth: int, device: Device) -> bool:
    """Whether all panels of B stay in half of the first-level cache."""
    return 4 * depth * p.n <= device.cpu.l1d_bytes // 2


def pays_to_copy_rows(p: MatmulShape, tile: Tile, columns: int, device: Device) -> bool:
    """Whether copying pays for a tile's rows, spread over too many pages or too few sets, and
    meeting enough panels.
    """
    apart = p.a_row == 1 and p.a_step >= FAR_STEP
    if tile.lanes < WIDE_LANES:
        return apart and columns >= LONG_COPY * tile.columns and _has_cache(device)
    by_rows = p.a_step == 1 and p.m > FEW_ROWS and columns >= MANY_VECTORS * tile.lanes
    return (apart and columns >= FEWEST_COLUMNS) or by_rows


def _collides(pitch: int, tile: Tile, depth: int) -> bool:
    """Whether a panel's rows evict each other because they map to few cache sets."""
    lines = -(-tile.columns // LINE_FLOATS)
    starts = SETS // math.gcd(pitch // LINE_FLOATS, SETS) if pitch % LINE_FLOATS == 0 else SETS
    return depth * lines > WAYS * min(SETS, starts * lines)


def block_rows(p: MatmulShape, tile: Tile, depth: int, device: Device, rows_copied: bool) -> int:
    """Rows of A that stay in the second-level cache while all panels of B are processed.

    Each block transposes or decodes the panels of B again, so it must be long. If a narrow core's
    first-level cache holds all of B, a block is a few tiles: A is read once, and results are
    written row by row.
    """
    if tile.lanes < WIDE_LANES and _has_cache(device) and p.n > tile.columns:
        if not p.by_panels and _stays(p, depth, device):
            near = device.cpu.l1d_bytes // 4 // (4 * tile.rows * (depth + p.n))
            return min(max(near, 1) * tile.rows, COPIED_TILES * tile.rows, align(p.m, tile.rows))
        if rows_copied:
            return min(COPIED_TILES * tile.rows, align(p.m, tile.rows))
    if p.n <= tile.columns or 4 * p.m * depth <= device.cpu.l2_bytes // 2:
        return align(p.m, tile.rows)
    if rows_copied:
        return align(min(p.m, COPIED_BLOCK), tile.rows)
    fitting = device.cpu.l2_bytes // 4 // (4 * depth)
    return align(max(fitting, LONG_BLOCK if p.by_panels else 1), tile.rows)
