"""Kernels of `matmul`: the three products of training, y = x w, dx = dy wᵀ and dw = xᵀ dy.

The template is runtime/kernels/gemm.inc.h. Here a shape gets its tile, its block of the inner
dimension, and the dimension that threads share; an epilogue comes along from the fusion.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pockengine.backends.c.epilogue import Anchored, open_fusion
from pockengine.backends.c.kernel import SYMBOL, Kernel, align, define_kernel
from pockengine.backends.c.options import DEFAULT, Candidate, Options, Picker, cheapest
from pockengine.backends.c.tile import Machine, Tile, machine_of, multiply_cycles, tiles
from pockengine.compiler.ir import Node
from pockengine.devices.schema import Device

Split = Literal["ROWS", "COLUMNS", "INNER"]

WHOLE_DEPTH, BLOCK_DEPTH = 480, 320
"""An inner dimension up to the first is taken at once, a longer one in blocks of the second."""

INNER_RESULTS, INNER_DEPTH = 40_000, 784
"""Small results of a long sum split the sum: each thread reads the rows that it wrote itself."""

FEW_ROWS = 8
"""Up to so many rows of A, transposing B costs more than sums along the inner dimension."""

SMALLEST_PAIRED = 16
"""Rows, columns and steps from which on rounding the operands to bf16 costs less than it saves."""

LONG_BLOCK = 384
"""Rows of a block that hide the transposition of a panel: 4 % of their products."""

TRANSPOSE_CYCLES = 0.5
"""Cycles to transpose one element into a panel."""


@dataclass(frozen=True)
class Product:
    """The matrices of a matmul: y (m, n) is the sum over k, `batch` times.

    `a_row` and `a_step` are A's strides between rows and between steps of k. `a_batch` and
    `b_batch` are C expressions of i for where the i-th matrices start.
    """

    m: int
    n: int
    k: int
    a_row: int
    a_step: int
    b_pitch: int
    b_transposed: bool = False
    batch: int = 1
    a_batch: str = "0"
    b_batch: str = "0"


@dataclass(frozen=True)
class Plan:
    """How a product is computed; `depth` steps and `rows` rows of A make a block."""

    tile: Tile
    split: Split
    depth: int
    threads: int
    rows: int


def matmul_kernel(node: Node, device: Device, options: Options = DEFAULT) -> Kernel:
    """Emit a matmul, or a fusion around one."""
    opened = open_fusion(node, device)
    return product_kernel(opened, product_of(opened.anchor), device, options)


def product_of(node: Node) -> Product:
    """Read a matmul node's shapes. Batches of rows against one B are one tall matrix."""
    a, b = (operand.shape for operand in node.operands)
    transpose_a, transpose_b = node.attrs["transpose_a"], node.attrs["transpose_b"]
    batches = node.result.shape[:-2]
    m, n = node.result.shape[-2:]
    k = a[-2] if transpose_a else a[-1]
    a_row, a_step = (1, m) if transpose_a else (k, 1)
    if math.prod(b[:-2]) == 1 and not transpose_a and math.prod(a[:-2]) == math.prod(batches):
        m, batches = m * math.prod(batches), ()
    return Product(
        m=m,
        n=n,
        k=k,
        a_row=a_row,
        a_step=a_step,
        b_pitch=k if transpose_b else n,
        b_transposed=transpose_b,
        batch=math.prod(batches),
        a_batch=_batch_offset(a, batches),
        b_batch=_batch_offset(b, batches),
    )


def _batch_offset(operand: Sequence[int], batches: Sequence[int]) -> str:
    """The C expression, of i, for the element where an operand's i-th matrix starts."""
    size = operand[-2] * operand[-1]
    own = [1] * (len(batches) - len(operand[:-2])) + list(operand[:-2])
    if math.prod(own) == 1:
        return "0"
    if tuple(own) == tuple(batches):
        return f"(i) * (ptrdiff_t){size}"
    terms = []
    for index, extent in enumerate(own):
        if extent > 1:
            inner, step = math.prod(batches[index + 1 :]), size * math.prod(own[index + 1 :])
            terms.append(f"(i) / {inner} % {extent} * {step}")
    return f"({' + '.join(terms)})"


def plan_product(
    product: Product, device: Device, pick: Picker = cheapest, kind: str = "f32"
) -> Plan:
    """Pick a tile and a split; the estimate is tile.py's. `kind` tells products of pairs apart."""
    machine, threads = machine_of(device), device.cpu.cores
    splits: tuple[Split, ...] = ("ROWS", "COLUMNS")
    if product.batch == 1 and product.m * product.n <= INNER_RESULTS and product.k >= INNER_DEPTH:
        splits = ("INNER",)
    depth = product.k if product.k <= WHOLE_DEPTH else BLOCK_DEPTH
    candidates = [
        Candidate(
            f"{split} {tile.label}",
            _cycles(machine, product, tile, split, threads),
            Plan(tile, split, depth, threads, _block_rows(product, tile, depth, device)),
        )
        for tile in tiles(machine, product.m, product.n, product.a_row)
        for split in splits
    ]
    return pick(f"{_key(product)} {kind}", candidates)


def _key(p: Product) -> str:
    """All that plans depend on."""
    batch = f"{p.batch} of " if p.batch > 1 else ""
    a, b = ("t" if flag else "" for flag in (p.a_row == 1, p.b_transposed))
    return f"matmul {batch}{p.m}x{p.k}{a} {p.k}x{p.n}{b}"


def _block_rows(product: Product, tile: Tile, depth: int, device: Device) -> int:
    """Rows of A that stay in the second-level cache while all panels of B meet them.

    Each block transposes the panels of a transposed B anew, for which it must be long.
    """
    if product.n <= tile.columns or 4 * product.m * depth <= device.cpu.l2_bytes // 2:
        return align(product.m, tile.rows)
    fitting = device.cpu.l2_bytes // 4 // (4 * depth)
    return align(max(fitting, LONG_BLOCK if product.b_transposed else 1), tile.rows)


def _cycles(machine: Machine, p: Product, tile: Tile, split: Split, threads: int) -> float:
    """Cycles of the busiest thread."""
    packed = p.k * p.n * TRANSPOSE_CYCLES if p.b_transposed else 0.0
    if split == "INNER":
        whole = multiply_cycles(machine, tile, p.m, p.n, -(-p.k // threads))
        return whole + packed / threads
    size, step = (p.m, tile.rows) if split == "ROWS" else (p.n, tile.columns)
    units = -(-size // step)
    share = min(p.batch * size, -(-p.batch * units // threads) * step) / size
    rows, columns = (p.m, p.n)
    whole = multiply_cycles(machine, tile, rows, columns, p.k)
    again = 1.0 if split == "ROWS" and p.batch < threads else share
    return whole * share + packed * max(again, share)


def product_kernel(
    opened: Anchored, product: Product, device: Device, options: Options = DEFAULT
) -> Kernel:
    """Emit a product; the anchor's operands are A and B in this order.

    With `bf16` the operands of products that are large enough are rounded to bf16; sums are f32.
    """
    if product.b_transposed and product.a_step == 1 and product.m <= FEW_ROWS:
        return _dot_kernel(opened, product, device)
    smallest = min(product.m, product.n, product.k)
    if options.bf16 and product.batch == 1 and smallest >= SMALLEST_PAIRED:
        pairs = _pairs_of(product)
        plan = plan_product(pairs, device, options.pick, "pairs of bf16")
        return _tiled_kernel(opened, pairs, plan, device, product)
    return _tiled_kernel(opened, product, plan_product(product, device, options.pick), device)


def _pairs_of(product: Product) -> Product:
    """The product of the operands' matrices of pairs: half the steps, dense rows."""
    steps = -(-product.k // 2)
    a_row, a_step = (1, product.m) if product.a_row == 1 else (steps, 1)
    pitch = steps if product.b_transposed else product.n
    return replace(product, k=steps, a_row=a_row, a_step=a_step, b_pitch=pitch)


def _dot_kernel(opened: Anchored, product: Product, device: Device) -> Kernel:
    """Emit sums along the inner dimension: runtime/kernels/gemm_dot.inc.h."""
    machine = machine_of(device)
    rows = min(product.m, 4)
    fitting = [n for n in (1, 2, 4, 8) if rows * n + n + 1 < machine.registers - 1]
    tile = Tile(machine.lanes, rows, min(max(fitting), machine.lanes))
    macros = _matrix_macros(product, tile)
    return define_kernel(
        name=f"pe_f32_{opened.title}_{product.m}x{product.n}x{product.k}_dot",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, f"{SYMBOL}_run(w, &io, {', '.join(opened.names)});", *opened.end],
        prelude=_comment(product) + template(macros, opened.store, "gemm_dot"),
    )


def _tiled_kernel(
    opened: Anchored, product: Product, plan: Plan, device: Device, f32: Product | None = None
) -> Kernel:
    """Emit the general form: runtime/kernels/gemm.inc.h. `f32` is what a product of pairs is of."""
    kind = "bf16" if f32 else "f32"
    panel = align(plan.depth * plan.tile.columns, 16) if product.b_transposed else 0
    partial = _partial_floats(opened, product, plan)
    sums = partial * (plan.threads if plan.split == "INNER" else 1)
    pairs = sums + panel * plan.threads
    sizes = (product.m * product.k, product.n * product.k) if f32 else (0, 0)
    a_floats, b_floats = (align(size, 16) for size in sizes)
    names = dict(zip("ab", opened.names, strict=True))
    pair = []
    if f32:
        names = {"a": "a_pairs", "b": "b_pairs"}
        pair = [
            f"float *a_pairs = (float *)scratch + {pairs}, *b_pairs = a_pairs + {a_floats};",
            f"{SYMBOL}_pair_operands(w, a_pairs, b_pairs, {', '.join(opened.names)});",
        ]
    waiting = "scratch" if partial else "y0" if opened.plain else "NULL"
    return define_kernel(
        name=f"pe_{kind}_{opened.title}_{product.m}x{product.n}x{(f32 or product).k}_{plan.tile}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[
            opened.io,
            *pair,
            f"float *sums = {waiting};",
            f"float *panels = {f'(float *)scratch + {sums}' if panel else 'NULL'};",
            f"{SYMBOL}_run(w, &io, {names['a']}, {names['b']}, sums, panels);",
            *opened.end,
        ],
        prelude=_prelude(opened, product, plan, partial, panel, f32),
        scratch_bytes=4 * (pairs + a_floats + b_floats),
    )


def _partial_floats(opened: Anchored, product: Product, plan: Plan) -> int:
    """Scratch for unfinished sums; plain results wait in the result itself."""
    if plan.split == "INNER":
        return align(product.m * product.n, 16)
    unfinished = product.k > plan.depth and opened.plain is None
    return align(product.batch * product.m * product.n, 16) if unfinished else 0


def _prelude(
    opened: Anchored, p: Product, plan: Plan, partial: int, panel: int, f32: Product | None
) -> str:
    macros = _matrix_macros(p, plan.tile) | {
        "PE_KB": plan.depth,
        "PE_MB": plan.rows,
        "PE_A_STEP": p.a_step,
        "PE_B_TRANSPOSED": int(p.b_transposed),
        "PE_SPLIT": f"PE_SPLIT_{plan.split}",
        "PE_THREADS": plan.threads,
        "PE_PARTIAL": int(plan.split == "INNER" or p.k > plan.depth),
        "PE_PART_FLOATS": partial,
        "PE_PANEL_FLOATS": panel,
    }
    if f32:
        macros |= {"PE_BF16": 1, "PE_F32_K": f32.k}
    return _comment(f32 or p) + template(macros, opened.store, "gemm")


def _matrix_macros(p: Product, tile: Tile) -> dict[str, object]:
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": tile.lanes,
        "PE_MR": tile.rows,
        "PE_NV": tile.vectors,
        "PE_M": p.m,
        "PE_N": p.n,
        "PE_K": p.k,
        "PE_A_ROW": p.a_row,
        "PE_B_PITCH": p.b_pitch,
        "PE_BATCH": p.batch,
        "PE_A_BATCH(i)": p.a_batch,
        "PE_B_BATCH(i)": p.b_batch,
    }


def _comment(p: Product) -> str:
    batch = f"{p.batch} x " if p.batch > 1 else ""
    a, b = (" transposed" if flag else "" for flag in (p.a_row == 1, p.b_transposed))
    return f"/* {batch}y[{p.m},{p.n}] = A[{p.m},{p.k}]{a} B[{p.k},{p.n}]{b} */\n"


def template(macros: dict[str, object], store: str, name: str) -> str:
    """A template's parameters, the epilogue, and the template itself."""
    lines = [f"#define {key} {value}" for key, value in macros.items()]
    return "\n".join([*lines, store, f'#include "kernels/{name}.inc.h"'])
