"""Kernels of `matmul`: the three products of training, y = x w, dx = dy wᵀ and dw = xᵀ dy.

The templates are gemm*.inc.h of runtime/kernels; product.py chooses the parameters; an epilogue
comes from the fusion, and so does the decoding of a weight, which the templates do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pockengine.backends.c.elementwise.epilogue import Anchored, open_fusion, split_fusion
from pockengine.backends.c.family import KernelFamily
from pockengine.backends.c.modelled import whole_cycles
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.products.amx import AmxSpec
from pockengine.backends.c.products.blocks import BlocksSpec
from pockengine.backends.c.products.product import (
    DotSpec,
    ProductSpec,
    StreamSpec,
    TiledSpec,
    choose_product,
)
from pockengine.backends.c.products.product_shape import BatchStride, MatmulShape, product_of
from pockengine.backends.c.tile import Tile
from pockengine.backends.native.kernel import Kernel, define_kernel
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.native.text import Code, Text, defines, joined
from pockengine.compiler.ir import DType, Node
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device


def choose_matmul(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Choose how to compute a matmul, or a fusion around one."""
    fused = split_fusion(node)
    product = product_of(fused.anchor, fused.decode)
    choice = choose_product(product, fused.plain, device, options)
    return replace(choice, cycles=whole_cycles(choice.cycles, node, device))


def matmul_kernel(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit a matmul, or a fusion around one, as chosen."""
    assert isinstance(choice.spec, ProductSpec)
    return product_kernel(open_fusion(node, device), choice.spec, device)


MATMUL = KernelFamily(choose_matmul, matmul_kernel)


def product_kernel(opened: Anchored, spec: ProductSpec, device: Device) -> Kernel:
    """Emit a product; the anchor's operands are A and B, or its codes and scales, in this order."""
    body, prelude = product_text(opened, spec)
    p = (isinstance(spec, TiledSpec) and spec.f32) or spec.product
    return define_kernel(
        name=f"pe_{spec.kind}_{opened.title}_{p.m}x{p.n}x{p.k}_{spec.form}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=body,
        prelude=prelude,
        scratch_bytes=spec.scratch_bytes,
    )


def product_text(opened: Anchored, spec: ProductSpec) -> tuple[list[Code], Text]:
    """Return the lines of a product's function, and its prelude."""
    if isinstance(spec, DotSpec):
        run = f"{opened.symbol}_run(w, &io, {', '.join(opened.names)});"
        macros = _matrix_macros(opened, spec.product, spec.tile) | _element_macros(spec.product)
        prelude = _comment(spec.product) + template(macros, opened.store, "gemm_dot")
        return [opened.io, run, *opened.end], prelude
    if isinstance(spec, StreamSpec):
        run = f"{opened.symbol}_run(w, &io, {', '.join(opened.names)}, scratch);"
        return [opened.io, run, *opened.end], _stream_prelude(opened, spec)
    if isinstance(spec, BlocksSpec):
        return [opened.io, _blocks_run(opened, spec), *opened.end], _blocks_prelude(opened, spec)
    if isinstance(spec, AmxSpec):
        a, b = (opened.names[0], "NULL") if spec.product.stored else opened.names
        run = f"{opened.symbol}_run(w, &io, {a}, {b}, scratch);"
        return [opened.io, run, *opened.end], _amx_prelude(opened, spec)
    return _tiled_body(opened, spec), _tiled_prelude(opened, spec)


def _tiled_body(opened: Anchored, spec: TiledSpec) -> list[Code]:
    """Divide the scratch: unfinished sums, panels of all threads, then the operands as pairs."""
    stored = (spec.f32 or spec.product).stored
    names = ", ".join(opened.names if stored is None else (opened.names[0], "NULL"))
    pair = []
    if spec.f32:
        pairs, a_floats = spec.sums + spec.own * spec.plan.threads, spec.operands[0]
        b_pairs = f"(float *){opened.names[1]}" if spec.in_place else f"a_pairs + {a_floats}"
        pair = [
            f"float *a_pairs = (float *)scratch + {pairs}, *b_pairs = {b_pairs};",
            f"{opened.symbol}_pair_operands(w, &io, a_pairs, b_pairs, {names});",
        ]
        names = "a_pairs, b_pairs"
    waiting = "scratch" if spec.partial else opened.plain or "NULL"
    return [
        opened.io,
        *pair,
        f"float *sums = {waiting};",
        f"float *panels = {f'(float *)scratch + {spec.sums}' if spec.own else 'NULL'};",
        f"{opened.symbol}_run(w, &io, {names}, sums, panels);",
        *opened.end,
    ]


def _tiled_prelude(opened: Anchored, spec: TiledSpec) -> Text:
    p, plan = spec.product, spec.plan
    macros = _matrix_macros(opened, p, plan.tile) | {
        "PE_KB": plan.depth,
        "PE_MB": plan.rows,
        "PE_A_STEP": p.a_step,
        "PE_B_TRANSPOSED": int(p.b_transposed),
        "PE_SPLIT": f"PE_SPLIT_{plan.split}",
        "PE_THREADS": plan.threads,
        "PE_PARTIAL": int(plan.split == "INNER" or p.k > plan.depth),
        "PE_PART_FLOATS": spec.partial,
        "PE_PANEL_FLOATS": spec.own,
        "PE_B_COPIED": plan.copied,
    }
    macros |= _decoding_macros(opened, spec.f32 or p)
    if plan.rows_copied:
        macros |= {"PE_A_COPIED": 1, "PE_ROWS_AT": spec.panel}
    if spec.f32:
        macros |= {"PE_PAIRS": 1, "PE_F32_K": spec.f32.k, "PE_B_IN_PLACE": int(spec.in_place)}
    store = opened.store + "\n" + opened.store_pair
    return _comment(spec.f32 or p) + template(macros, store, "gemm")


def _stream_prelude(opened: Anchored, spec: StreamSpec) -> Text:
    p = spec.product
    streams = {
        "PE_STEPS": spec.steps,
        "PE_PITCH": spec.pitch,
        "PE_BY_LANE": int(spec.machine.by_lane),
    }
    macros = _macros(opened, p, spec.machine.lanes, streams)
    macros |= {"PE_B_PITCH": p.b_pitch, **_element_macros(p)}
    return _comment(p) + template(macros, opened.store, "gemm_stream")


def _decoding_macros(opened: Anchored, p: MatmulShape) -> dict[str, object]:
    """How panels of B are decoded."""
    if p.stored is None:
        return {}
    codes = {"PE_CODES(io)": f"(io)->{opened.names[1]}", "PE_S_PITCH": p.b_pitch}
    if isinstance(p.stored, DType):
        return {"PE_B_BITS": 16, "PE_LOAD_B": _load_of(p.stored), **codes}
    scales = {"PE_SCALES(io)": f"(io)->{opened.names[2]}"}
    return {"PE_B_BITS": p.stored.bits, "PE_B_ALONG": p.stored.axis, **codes, **scales}


def _element_macros(p: MatmulShape) -> dict[str, object]:
    """How elements of B are read in place."""
    if not isinstance(p.stored, DType):
        return {}
    return {"PE_B_TYPE": "uint16_t", "PE_LOAD_B": _load_of(p.stored)}


def _load_of(dtype: DType) -> str:
    return f"pe_load_part{c_scalar(dtype).suffix}"


def _blocks_run(opened: Anchored, spec: BlocksSpec) -> str:
    a, codes, scales = opened.names
    sums = "" if spec.product.b_transposed else ", scratch"
    return f"{opened.symbol}_run(w, &io, {a}, (const uint8_t *){codes}, {scales}{sums});"


def _blocks_prelude(opened: Anchored, spec: BlocksSpec) -> Text:
    p = spec.product
    macros = _macros(opened, p, spec.lanes, {"PE_BITS": spec.bits})
    if p.b_transposed:
        text = template(macros | {"PE_NV": spec.dots}, opened.store, "gemm_blocks_dot")
    else:
        macros |= {"PE_STEPS": spec.steps, "PE_PITCH": spec.pitch}
        text = template(macros, opened.store, "gemm_blocks")
    return _comment(p) + '#include "pe_blocks.h"\n' + text


def _amx_prelude(opened: Anchored, spec: AmxSpec) -> Text:
    p = spec.product
    macros = _macros(opened, p, 16, {}) | {
        "PE_A_STEP": p.a_step,
        "PE_B_PITCH": p.b_pitch,
        "PE_B_TRANSPOSED": int(p.b_transposed),
        "PE_OWN_ROWS": int(spec.own_rows),
        "PE_OWN_LINES": spec.lines,
        "PE_KB": spec.depth,
        "PE_BATCH": p.batch,
        "PE_THREADS": spec.threads,
        "PE_A_BATCH(i)": batch_offset(p.a_batch, p.batch),
        "PE_B_BATCH(i)": batch_offset(p.b_batch, p.batch),
        **_decoding_macros(opened, p),
    }
    if p.stored is DType.BF16:
        macros["PE_B_BF16"] = 1
    return _comment(p) + template(macros, opened.store, "gemm_amx")


def _macros(
    opened: Anchored, p: MatmulShape, lanes: int, method: Mapping[str, object]
) -> dict[str, object]:
    """Macros of every method of products, with the method's own."""
    return {
        "PE_FN(name)": f"PE_JOIN({opened.symbol}_, name)",
        "PE_VL": lanes,
        **method,
        "PE_M": p.m,
        "PE_N": p.n,
        "PE_K": p.k,
        "PE_A_ROW": p.a_row,
    }


def _matrix_macros(opened: Anchored, p: MatmulShape, tile: Tile) -> dict[str, object]:
    method = {"PE_MR": tile.rows, "PE_NV": tile.vectors}
    return _macros(opened, p, tile.lanes, method) | {
        "PE_B_PITCH": p.b_pitch,
        "PE_BATCH": p.batch,
        "PE_A_BATCH(i)": batch_offset(p.a_batch, p.batch),
        "PE_B_BATCH(i)": batch_offset(p.b_batch, p.batch),
    }


def batch_offset(strides: Sequence[BatchStride], batch: int) -> str:
    """Return the C expression, of i, for the first element of the i-th of `batch` matrices."""
    if not strides:
        return "0"
    first = strides[0]
    if first.inner == 1 and first.extent == batch:  # dense
        return f"(i) * (ptrdiff_t){first.step}"
    terms = [f"(i) / {each.inner} % {each.extent} * {each.step}" for each in strides]
    return f"({' + '.join(terms)})"


def _comment(p: MatmulShape) -> str:
    batch = f"{p.batch} x " if p.batch > 1 else ""
    a, b = (" transposed" if flag else "" for flag in (p.a_row == 1, p.b_transposed))
    bits = f" as {p.stored}" if p.stored else ""
    return f"/* {batch}y[{p.m},{p.n}] = A[{p.m},{p.k}]{a} B[{p.k},{p.n}]{b}{bits} */\n"


def template(macros: dict[str, object], store: Code, name: str) -> Text:
    """A template's parameters, the epilogue, and the template itself."""
    return joined("\n", [*defines(macros.items()), store, f'#include "kernels/{name}.inc.h"'])
