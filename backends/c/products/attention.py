"""Kernels of attention and its gradients, a block of rows of a head's scores at a time.

The templates are attention.inc.h and attention_dx.inc.h of runtime/kernels. The products in them
are blocks of gemm_tile.inc.h, each with a tile of its own, or of operands rounded to bf16 in
Intel's AMX tiles.
"""

import math
from dataclasses import replace

from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.products.amx import SIDE, STEPS, WORDS
from pockengine.backends.c.products.attention_shape import (
    AttentionProduct,
    AttentionShape,
    AttentionSpec,
)
from pockengine.backends.c.products.product import dot_tile
from pockengine.backends.c.tile import WAY_FLOATS, Tile, machine_of, multiply_cycles, tiles
from pockengine.backends.native.expression import scalar
from pockengine.backends.native.kernel import (
    SYMBOL,
    Kernel,
    Parameter,
    align,
    define_kernel,
    read,
    write,
)
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.space import broadcast_strides
from pockengine.compiler.ir import BOOL, Node
from pockengine.compiler.ops import lookup
from pockengine.compiler.ops.attention import GRADIENTS, scores_shape
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

OPS = ("attention", *GRADIENTS)

LONGEST = 512
"""Maximum head size."""

BLOCK_ROWS, FEWEST_ROWS = 48, 12
"""Rows of a block. More rows compute more above a causal diagonal; fewer add to the gradients of
keys and values too often.
"""


TILED_ROWS = 64
"""The same in tiles."""

LONGEST_TILED = 256
"""Maximum head size in tiles, whose sums of all columns are on the stack."""


def choose_attention(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Choose the rows of a block and the tiles of its products.

    With `bf16` and Intel's AMX the operands of large products are rounded to bf16.
    """
    shape = AttentionShape(node)
    columns = shape.columns[0]
    lanes = machine_of(device).lanes
    pitch = align(columns, lanes) + lanes  # so rows lie in different cache sets
    pitch += lanes if pitch % WAY_FLOATS == 0 else 0
    fitting = device.cpu.l2_bytes // 4 // (4 * columns)  # both matrices of a block: half of it
    if options.bf16 and device.cpu.amx and _fills_tiles(shape):
        spec = _in_tiles(shape, device, pitch, max(SIDE, min(TILED_ROWS, fitting // SIDE * SIDE)))
    else:
        spec = _in_f32(shape, device, pitch, max(FEWEST_ROWS, min(BLOCK_ROWS, fitting)))
    label = f"{spec.rows} rows{' in tiles' if spec.bf16 else ''}"
    return plain_choice(node, device, label, scratch_bytes=spec.scratch_bytes, spec=spec)


def _fills_tiles(shape: AttentionShape) -> bool:
    (_, rows, _, size), (columns, _, width) = shape.rows, shape.columns
    return min(rows, columns, size, width) >= SIDE and max(size, width) <= LONGEST_TILED


def _in_f32(shape: AttentionShape, device: Device, pitch: int, rows: int) -> AttentionSpec:
    block = min(rows, shape.rows[1])
    products = [_with_tile(product, device) for product in shape.products(block, pitch)]
    reach = math.lcm(*(p.tile.rows for p in products if p.store == "ADDED" and p.tile))
    size, width = shape.rows[3], shape.columns[2]
    shares = align(block * pitch, 16)
    return AttentionSpec(
        block,
        pitch,
        reach,
        keys=0 if shape.by_dots else align(size * pitch, 16),
        values=align(width * pitch, 16) if shape.toward else 0,
        shares=shares,
        toward=shares if shape.toward else 0,
        parts=shape.parts,
        threads=device.cpu.cores,
        products=tuple(products),
    )


def _with_tile(product: AttentionProduct, device: Device) -> AttentionProduct:
    """Add the cheapest tile."""
    machine = machine_of(device)
    if product.store == "DOTS":
        return replace(product, tile=dot_tile(product.m, machine))
    m, n, k = product.m, product.n, product.k
    found = tiles(machine, m, n, product.a[0])
    transposed = product.a[0] == 1

    def cycles(tile: Tile) -> float:
        return multiply_cycles(machine, tile, m, columns=n, depth=k, transposed=transposed)

    return replace(product, tile=min(found, key=cycles))


def _in_tiles(shape: AttentionShape, device: Device, pitch: int, rows: int) -> AttentionSpec:
    block = min(rows, shape.rows[1])
    products = shape.products(block, pitch)
    words = {p.name: 2 * -(-p.n // SIDE) * -(-p.k // STEPS) * WORDS for p in products}
    shares = align(block * pitch, 16)
    return AttentionSpec(
        block,
        pitch,
        reach=SIDE,
        keys=words["scores"],
        values=words.get("mix", 0) + words.get("toward", 0),
        shares=shares,
        toward=shares if shape.toward else 0,
        parts=shape.parts,
        threads=device.cpu.cores,
        products=tuple(products),
        steps=words.get("dq", 0),
        operand=max(words.get("dk", 0), words.get("dv", 0)),
    )


def attention_kernel(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit attention, or some of its gradients."""
    spec, shape = choice.spec, AttentionShape(node)
    assert isinstance(spec, AttentionSpec)
    (batch, rows, heads, size), (columns, groups, _) = shape.rows, shape.columns
    template = "attention_dx" if shape.backward else "attention"
    kind = "bf16" if spec.bf16 else "f32"
    title = "_".join(["attention", *sorted(shape.gradients)])
    macros = {**_macros(spec, shape, machine_of(device).lanes), **_mask_macros(shape)}
    parameters, passed = _parameters(shape)
    call = f"{SYMBOL}_run(w, {passed}, scratch);"
    if shape.backward:
        call = f"{SYMBOL}_run(w, &(const {SYMBOL}_given){{{passed}, scratch}});"
    prelude = [
        *(_product_text(product, shape, spec.pitch) for product in spec.products),
        f"/* {title} of {batch} x {heads} heads, {groups} keys: {rows} rows, {columns} columns */",
        *(f"#define {name} {value}" for name, value in macros.items()),
        f'#include "kernels/{template}.inc.h"',
    ]
    return define_kernel(
        name=f"pe_{kind}_{title}_{batch}x{heads}x{rows}x{columns}x{size}_{spec.rows}",
        isa=device.cpu.isa,
        parameters=parameters,
        body=[call],
        prelude="\n".join(prelude),
        scratch_bytes=spec.scratch_bytes,
    )


def _parameters(shape: AttentionShape) -> tuple[list[Parameter], str]:
    """Return a kernel's parameters and arguments; a dummy operand stands for a missing mask."""
    inputs = shape.node.operands
    if shape.node.op == "fusion":  # which has each operand once
        inputs = tuple(shape.node.attrs["body"].inputs)
        names = {value: name for name, value in list(shape.named.items())[::-1]}
        own = [names[value] for value in inputs]
        called = {name: names[value] for name, value in shape.named.items()}
    else:
        own = list(shape.named)
        called = {name: name for name in own}
    parameters = [read(name, value) for name, value in zip(own, inputs, strict=True)]
    by_value = {value: name for name, value in shape.results.items()}
    parameters += [write(by_value[value], value) for value in shape.node.results]
    written = ("dq", "dk", "dv") if shape.backward else ("y", "stats")
    operands = [name for name in lookup(shape.members[0].op).operands if name != "mask"]
    passed = [called[name] for name in operands]
    passed.append(called.get("mask", called["q"]))
    passed += [name if name in shape.results else "NULL" for name in written]
    return parameters, ", ".join(passed)


def _product_text(product: AttentionProduct, shape: AttentionShape, pitch: int) -> str:
    tile = product.tile
    macros: dict[str, object] = {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_{product.name}_, name)",
        "PE_M": product.m,
        "PE_N": product.n,
        "PE_A_ROW": product.a[0],
        "PE_B_PITCH": product.b_pitch,
        "PE_Y_PITCH": product.y_pitch,
    }
    if product.store == "DOTS" or not tile:
        macros |= {"PE_K": product.k}
    if product.store != "DOTS":
        macros |= {
            "PE_A_STEP": product.a[1],
            "PE_STORE": f"PE_STORE_{product.store}",
            "PE_FACTOR_STEP": product.factor_step,
            "PE_SCALE": f"({scalar(shape.attrs['scale'])})",
        }
    if tile:
        macros |= {"PE_VL": tile.lanes, "PE_MR": tile.rows, "PE_NV": tile.vectors}
        template = "attention_dots"
        if product.store != "DOTS":
            macros |= {"PE_OTHER_M": product.last}
            macros |= {"PE_B_PITCH": pitch} if product.b_transposed else {}
            template = "attention_product"
    else:
        macros |= {"PE_VL": SIDE // 2, "PE_B_TRANSPOSED": int(product.b_transposed)}
        template = "attention_tiles"
    lines = [f"#define {name} {value}" for name, value in macros.items()]
    return "\n".join([*lines, f'#include "kernels/{template}.inc.h"', ""])


def _macros(spec: AttentionSpec, shape: AttentionShape, lanes: int) -> dict[str, object]:
    (batch, rows, heads, size), (columns, groups, width) = shape.rows, shape.columns
    macros: dict[str, object] = {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": lanes,
        "PE_BATCH": batch,
        "PE_ROWS": rows,
        "PE_HEADS": heads,
        "PE_SIZE": size,
        "PE_COLUMNS": columns,
        "PE_GROUPS": groups,
        "PE_WIDTH": width,
        "PE_BLOCK_ROWS": spec.rows,
        "PE_PITCH": spec.pitch,
        "PE_REACH": spec.reach,
        "PE_THREADS": spec.threads,
        "PE_OWN_FLOATS": spec.own,
        "PE_SCALE": f"({scalar(shape.attrs['scale'])})",
        "PE_HIDDEN": f"({scalar(shape.attrs['hidden'])})",
        "PE_CAUSAL": int(shape.attrs["causal"]),
        "PE_SKIPS": int(shape.skips),
    }
    macros |= {
        "PE_KEYS_FLOATS": spec.keys,
        "PE_VALUES_FLOATS": spec.values,
        "PE_DOTS": int(shape.by_dots),
        "PE_TILES": int(spec.bf16),
    }
    if shape.backward:
        macros |= {
            f"PE_{name.upper()}": int(name in shape.gradients) for name in ("dq", "dk", "dv")
        }
        macros |= {
            "PE_SHARED_HEADS": int(shape.shares_heads),
            "PE_SHARES_FLOATS": spec.shares,
            "PE_STEPS_FLOATS": spec.steps,
        }
    return macros


def _mask_macros(shape: AttentionShape) -> dict[str, object]:
    """Return the mask's kind and strides (0 if broadcast), and whether it replaces scores."""
    mask = shape.named.get("mask")
    bools = mask is not None and mask.dtype is BOOL
    kind = "NONE" if mask is None else "SEEN" if bools else "ADDED"
    full = scores_shape(shape.named["q"].type, shape.named["k"].type)
    strides = broadcast_strides(mask.shape, full) if mask is not None else (0, 0, 0, 0)
    names = ("PE_MASK_BATCH", "PE_MASK_HEAD", "PE_MASK_ROW", "PE_MASK_STEP")
    hides = shape.attrs["hidden"] == -math.inf
    return {
        "PE_MASK": f"PE_MASK_{kind}",
        "PE_MASK_TYPE": "float" if mask is None else c_scalar(mask.dtype).ctype,
        **dict(zip(names, strides, strict=True)),
        "PE_LOOKS": int(bools and hides and (strides[2] > 0 or full[2] == 1) and strides[3] > 0),
        "PE_HIDES": int(bools or (shape.attrs["causal"] and not shape.skips)),
    }


ATTENTION = KernelFamily(choose_attention, attention_kernel)
