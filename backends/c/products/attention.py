"""Kernels of attention and its gradients, a block of rows of a head's scores at a time.

The templates are attention.inc.h and attention_dx.inc.h of runtime/kernels. The products in them
are blocks of gemm_tile.inc.h, each with a tile of its own.
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.options import KernelOptions
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
from pockengine.compiler.ir import BOOL, Node, Value
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


@dataclass(frozen=True)
class AttentionProduct:
    """A product of a block: m rows and n columns of results, with row pitch `y_pitch` in floats.

    `last` are the rows of the last block, `a` A's strides between rows and between steps. `store`
    and `factor_step` are as in attention_product.inc.h; DOTS are sums by attention_dots.inc.h.
    """

    name: str
    m: int
    last: int
    n: int
    a: tuple[int, int]
    b_pitch: int
    y_pitch: int
    tile: Tile
    store: str = "SUMS"
    factor_step: int = 1


@dataclass(frozen=True)
class AttentionSpec:
    """A block's rows, the pitch of its scores, and scratch, in floats.

    `keys`, `values` and `shares` are the parts of each thread's scratch, `parts` the heads'
    contributions to a group's gradients. `reach` is the columns of a whole tile.
    """

    rows: int
    pitch: int
    reach: int
    keys: int
    values: int
    shares: int
    toward: int
    parts: int
    threads: int
    products: tuple[AttentionProduct, ...]

    @property
    def own(self) -> int:
        """Scratch of a thread."""
        return self.keys + self.values + self.shares + self.toward

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel."""
        return 4 * (self.own * self.threads + self.parts)


@dataclass(frozen=True)
class _Sizes:
    """Sizes of a node, and its gradients (none for a forward pass).

    A fusion computes gradients of the same operands.
    """

    node: Node
    device: Device

    @cached_property
    def members(self) -> Sequence[Node]:
        """The node, or the members of a fusion."""
        return self.node.attrs["body"].nodes if self.node.op == "fusion" else [self.node]

    @cached_property
    def attrs(self) -> Mapping[str, Any]:
        return self.members[0].attrs

    @cached_property
    def named(self) -> Mapping[str, Value]:
        """Operands by the op's names."""
        first = self.members[0]
        return dict(zip(lookup(first.op).operands, first.operands, strict=False))  # mask or none

    @cached_property
    def results(self) -> Mapping[str, Value]:
        """The kernel's results, by their names in the templates."""
        if not self.backward:
            return dict(zip(("y", "stats"), self.node.results, strict=True))
        made = {member.op.removeprefix("attention_"): member.result for member in self.members}
        if self.node.op == "fusion":
            outputs = list(self.node.attrs["body"].outputs.values())
            return {name: self.node.results[outputs.index(value)] for name, value in made.items()}
        return made

    @cached_property
    def rows(self) -> tuple[int, int, int, int]:
        """Batch, rows, heads, size."""
        batch, rows, heads, size = self.named["q"].shape
        return batch, rows, heads, size

    @cached_property
    def columns(self) -> tuple[int, int, int]:
        """Columns, groups, width."""
        _, columns, groups, width = self.named["v"].shape
        return columns, groups, width

    @property
    def gradients(self) -> Set[str]:
        """The gradients."""
        return self.results.keys() - {"y", "stats"}

    @property
    def backward(self) -> bool:
        return self.members[0].op != "attention"

    @property
    def toward(self) -> bool:
        """Whether the gradient of the scores is needed."""
        return not self.gradients.isdisjoint({"dq", "dk"})

    @property
    def skips(self) -> bool:
        """Whether nothing above the diagonal is visible."""
        return bool(self.attrs["causal"]) and self.attrs["hidden"] == -math.inf

    @property
    def by_dots(self) -> bool:
        """Whether the scores of a forward pass are sums along rows of keys.

        For a single row this takes 0.7 to 0.9 times as long as transposing the keys, on Zen 3; for
        two and four rows as long.
        """
        return not self.backward and self.rows[1] == 1

    @property
    def shares_heads(self) -> bool:
        return self.rows[2] != self.columns[1]

    def tile(self, m: int, n: int, a_row: int, depth: int) -> Tile:
        """Return the cheapest tile."""
        machine = machine_of(self.device)
        found = tiles(machine, m, n, a_row)
        return min(
            found, key=lambda tile: multiply_cycles(machine, tile, m, columns=n, depth=depth)
        )


def choose_attention(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Choose the rows of a block and the tiles of its products."""
    sizes = _Sizes(node, device)
    _, rows, _, size = sizes.rows
    columns, _, width = sizes.columns
    fitting = device.cpu.l2_bytes // 4 // (4 * columns)  # both matrices of a block: half of it
    block = min(rows, max(FEWEST_ROWS, min(BLOCK_ROWS, fitting)))
    lanes = machine_of(device).lanes
    pitch = align(columns, lanes) + lanes  # so rows lie in different cache sets
    pitch += lanes if pitch % WAY_FLOATS == 0 else 0
    products = tuple(_products(sizes, block, pitch))
    shares = align(block * pitch, 16)
    spec = AttentionSpec(
        block,
        pitch,
        math.lcm(*(product.tile.rows for product in products if product.store == "ADDED")),
        keys=0 if sizes.by_dots else align(size * pitch, 16),
        values=align(width * pitch, 16) if sizes.toward else 0,
        shares=shares,
        toward=shares if sizes.toward else 0,
        parts=_parts(sizes),
        threads=device.cpu.cores,
        products=products,
    )
    return plain_choice(node, device, f"{block} rows", scratch_bytes=spec.scratch_bytes, spec=spec)


def _parts(sizes: _Sizes) -> int:
    """Return the floats of the heads' contributions to a group's gradients before summation."""
    if not sizes.shares_heads:
        return 0
    (batch, _, heads, size), (columns, _, width) = sizes.rows, sizes.columns
    lengths = {"dk": size, "dv": width}
    return batch * heads * columns * sum(lengths.get(name, 0) for name in sizes.gradients)


def _products(sizes: _Sizes, block: int, pitch: int) -> list[AttentionProduct]:
    """Return a block's products: scores, then the products with them."""
    (_, rows, heads, size), (columns, groups, width) = sizes.rows, sizes.columns
    of_rows = partial(AttentionProduct, m=block, last=rows - (rows - 1) // block * block)
    of_columns = partial(AttentionProduct, m=columns, last=columns, a=(1, pitch), store="ADDED")

    def product(
        name: str, n: int, a_row: int, b_pitch: int, y_pitch: int, depth: int, *store: str | int
    ) -> AttentionProduct:
        tile = sizes.tile(block, n, a_row, depth)
        kind, step = store or ("SUMS", 1)
        made = of_rows(name, n=n, a=(a_row, 1), b_pitch=b_pitch, y_pitch=y_pitch, tile=tile)
        return replace(made, store=str(kind), factor_step=int(step))

    def added(name: str, length: int) -> AttentionProduct:
        tile = sizes.tile(columns, length, 1, block)
        y_pitch = length if sizes.shares_heads else groups * length
        return of_columns(name, n=length, b_pitch=heads * length, y_pitch=y_pitch, tile=tile)

    found = [product("scores", columns, heads * size, pitch, pitch, size)]
    if sizes.by_dots:
        tile = dot_tile(rows, machine_of(sizes.device))
        found = [replace(found[0], b_pitch=groups * size, tile=tile, store="DOTS")]
    if not sizes.backward:
        places = (pitch, groups * width, heads * width)
        return [*found, product("mix", width, *places, columns, "SCALED", 1)]
    if sizes.toward:
        places = (heads * width, pitch, pitch)
        found.append(product("toward", columns, *places, width, "TOWARD", heads))
    if "dq" in sizes.gradients:
        found.append(product("dq", size, pitch, groups * size, heads * size, columns))
    lengths = {"dk": size, "dv": width}
    return [*found, *(added(n, length) for n, length in lengths.items() if n in sizes.gradients)]


def attention_kernel(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit attention, or some of its gradients."""
    spec, sizes = choice.spec, _Sizes(node, device)
    assert isinstance(spec, AttentionSpec)
    (batch, rows, heads, size), (columns, groups, _) = sizes.rows, sizes.columns
    template = "attention_dx" if sizes.backward else "attention"
    title = "_".join(["attention", *sorted(sizes.gradients)])
    macros = {**_macros(spec, sizes), **_mask_macros(sizes)}
    parameters, passed = _parameters(sizes)
    call = f"{SYMBOL}_run(w, {passed}, scratch);"
    if sizes.backward:
        call = f"{SYMBOL}_run(w, &(const {SYMBOL}_given){{{passed}, scratch}});"
    prelude = [
        *(_product_text(product, sizes) for product in spec.products),
        f"/* {title} of {batch} x {heads} heads, {groups} keys: {rows} rows, {columns} columns */",
        *(f"#define {name} {value}" for name, value in macros.items()),
        f'#include "kernels/{template}.inc.h"',
    ]
    return define_kernel(
        name=f"pe_f32_{title}_{batch}x{heads}x{rows}x{columns}x{size}_{spec.rows}",
        isa=device.cpu.isa,
        parameters=parameters,
        body=[call],
        prelude="\n".join(prelude),
        scratch_bytes=spec.scratch_bytes,
    )


def _parameters(sizes: _Sizes) -> tuple[list[Parameter], str]:
    """Return a kernel's parameters and arguments; a dummy operand stands for a missing mask."""
    inputs = sizes.node.operands
    if sizes.node.op == "fusion":  # which has each operand once
        inputs = tuple(sizes.node.attrs["body"].inputs)
        names = {value: name for name, value in list(sizes.named.items())[::-1]}
        own = [names[value] for value in inputs]
        called = {name: names[value] for name, value in sizes.named.items()}
    else:
        own = list(sizes.named)
        called = {name: name for name in own}
    parameters = [read(name, value) for name, value in zip(own, inputs, strict=True)]
    by_value = {value: name for name, value in sizes.results.items()}
    parameters += [write(by_value[value], value) for value in sizes.node.results]
    written = ("dq", "dk", "dv") if sizes.backward else ("y", "stats")
    operands = [name for name in lookup(sizes.members[0].op).operands if name != "mask"]
    passed = [called[name] for name in operands]
    passed.append(called.get("mask", called["q"]))
    passed += [name if name in sizes.results else "NULL" for name in written]
    return parameters, ", ".join(passed)


def _product_text(product: AttentionProduct, sizes: _Sizes) -> str:
    macros: dict[str, object] = {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_{product.name}_, name)",
        "PE_VL": product.tile.lanes,
        "PE_MR": product.tile.rows,
        "PE_NV": product.tile.vectors,
        "PE_M": product.m,
        "PE_N": product.n,
        "PE_A_ROW": product.a[0],
        "PE_B_PITCH": product.b_pitch,
        "PE_Y_PITCH": product.y_pitch,
    }
    if product.store == "DOTS":
        macros |= {"PE_K": sizes.rows[3]}
    else:
        macros |= {
            "PE_OTHER_M": product.last,
            "PE_A_STEP": product.a[1],
            "PE_STORE": f"PE_STORE_{product.store}",
            "PE_FACTOR_STEP": product.factor_step,
            "PE_SCALE": f"({scalar(sizes.attrs['scale'])})",
        }
    template = "attention_dots" if product.store == "DOTS" else "attention_product"
    lines = [f"#define {name} {value}" for name, value in macros.items()]
    return "\n".join([*lines, f'#include "kernels/{template}.inc.h"', ""])


def _macros(spec: AttentionSpec, sizes: _Sizes) -> dict[str, object]:
    (batch, rows, heads, size), (columns, groups, width) = sizes.rows, sizes.columns
    macros: dict[str, object] = {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": machine_of(sizes.device).lanes,
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
        "PE_SCALE": f"({scalar(sizes.attrs['scale'])})",
        "PE_HIDDEN": f"({scalar(sizes.attrs['hidden'])})",
        "PE_CAUSAL": int(sizes.attrs["causal"]),
        "PE_SKIPS": int(sizes.skips),
    }
    macros |= {"PE_KEYS_FLOATS": spec.keys, "PE_DOTS": int(sizes.by_dots)}
    if sizes.backward:
        macros |= {
            f"PE_{name.upper()}": int(name in sizes.gradients) for name in ("dq", "dk", "dv")
        }
        macros |= {
            "PE_SHARED_HEADS": int(sizes.shares_heads),
            "PE_VALUES_FLOATS": spec.values,
            "PE_SHARES_FLOATS": spec.shares,
        }
    return macros


def _mask_macros(sizes: _Sizes) -> dict[str, object]:
    """Return the mask's kind and strides (0 if broadcast), and whether it replaces scores."""
    mask = sizes.named.get("mask")
    bools = mask is not None and mask.dtype is BOOL
    kind = "NONE" if mask is None else "SEEN" if bools else "ADDED"
    full = scores_shape(sizes.named["q"].type, sizes.named["k"].type)
    strides = broadcast_strides(mask.shape, full) if mask is not None else (0, 0, 0, 0)
    names = ("PE_MASK_BATCH", "PE_MASK_HEAD", "PE_MASK_ROW", "PE_MASK_STEP")
    hides = sizes.attrs["hidden"] == -math.inf
    return {
        "PE_MASK": f"PE_MASK_{kind}",
        "PE_MASK_TYPE": "float" if mask is None else c_scalar(mask.dtype).ctype,
        **dict(zip(names, strides, strict=True)),
        "PE_LOOKS": int(bools and hides and (strides[2] > 0 or full[2] == 1) and strides[3] > 0),
        "PE_HIDES": int(bools or (sizes.attrs["causal"] and not sizes.skips)),
    }


ATTENTION = KernelFamily(choose_attention, attention_kernel)
