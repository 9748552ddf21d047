"""Kernels of `conv2d`, `conv2d_dx` and `conv2d_dw`.

A 1x1 convolution of stride 1 is a matmul; with a larger stride it may be a matmul of some pixels
(strided.py). A depthwise one has kernels of its own (depthwise.py) unless its rows of taps are
long; a 3x3 one may be cheaper by Winograd's method (winograd.py). All others multiply image
windows, with conv.inc.h and conv_dw.inc.h: direct.py chooses the tile, the blocks, and the split
among threads.
"""

from collections.abc import Sequence
from dataclasses import replace

from pockengine.backends.c.convolutions.depthwise import (
    DepthwiseSpec,
    choose_depthwise,
    depthwise_kernel,
    is_unrolled,
)
from pockengine.backends.c.convolutions.direct import (
    ConvPlan,
    DirectSpec,
    GradientSpec,
    direct_plans,
    direct_spec,
    geometry_of,
    gradient_plans,
    gradient_spec,
)
from pockengine.backends.c.convolutions.strided import (
    StridedSpec,
    choose_strided,
    is_strided_product,
    pixel_product,
    strided_kernel,
)
from pockengine.backends.c.convolutions.winograd import (
    WinogradPlan,
    winograd_kernel,
    winograd_plans,
)
from pockengine.backends.c.convolutions.winograd_dw import (
    WinogradGradientPlan,
    winograd_gradient_kernel,
    winograd_gradient_plans,
)
from pockengine.backends.c.elementwise.epilogue import Anchored, Fused, open_fusion, split_fusion
from pockengine.backends.c.family import KernelFamily
from pockengine.backends.c.modelled import whole_cycles
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.products.amx import AmxSpec
from pockengine.backends.c.products.gemm import product_kernel, template
from pockengine.backends.c.products.product import (
    DotSpec,
    StreamSpec,
    TiledSpec,
    choose_product,
)
from pockengine.backends.geometry import Geometry
from pockengine.backends.native.kernel import SYMBOL, Kernel, define_kernel, note
from pockengine.backends.picking import PlanCandidate, as_candidates, picked
from pockengine.backends.window import (
    ConvWindow,
    ImageWindow,
    Pair,
    describe,
    tap_order,
    window_of,
)
from pockengine.compiler.ir import Node
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

WINOGRAD_GAIN = 0.9
"""Winograd's method is used if it needs at most this fraction of the direct kernel's cycles."""


PREPARED_GAIN = 0.95
"""Filters are prepared if that needs at most this fraction of the cycles."""


def choose_conv(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Choose how to compute a convolution, one of its gradients, or a fusion around one.

    With `bf16` plain products round their operands.
    """
    fused = split_fusion(node)
    choice = _choose(fused, window_of(fused.anchor), device, options)
    other = choice.if_frozen
    if other is not None and other.prepared is not None:
        weights = fused.inputs.index(fused.anchor.operands[other.prepared.operand])
        form = replace(other.prepared, operand=weights)
        cycles = whole_cycles(other.cycles, node, device)
        choice = replace(choice, if_frozen=replace(other, prepared=form, cycles=cycles))
    return replace(choice, cycles=whole_cycles(choice.cycles, node, device))


def _choose(fused: Fused, window: ConvWindow, device: Device, options: KernelOptions) -> Choice:
    op = fused.anchor.op
    if window.is_matmul:
        return choose_product(pixel_product(op, window), fused.plain, device, options)
    if is_strided_product(op, window, device):
        return choose_strided(fused, window, device, options)
    if window.is_depthwise and is_unrolled(op, window, device):
        return choose_depthwise(op, window, device)
    if op == "conv2d_dw":
        return _choose_gradient(window, fused.plain, device, options)
    return _choose_convolution(fused, window, device, options)


def _choose_convolution(
    fused: Fused, window: ConvWindow, device: Device, options: KernelOptions
) -> Choice:
    chosen = _planned_convolution(fused, window, device, options, prepared=False)
    if not options.prepare:
        return chosen
    other = _planned_convolution(fused, window, device, options, prepared=True)
    worth = other.prepared is not None and other.cycles < PREPARED_GAIN * chosen.cycles
    return replace(chosen, if_frozen=other) if worth else chosen


def _planned_convolution(
    fused: Fused, window: ConvWindow, device: Device, options: KernelOptions, prepared: bool
) -> Choice:
    """Choose among the plans, including those of Winograd's method with prepared filters."""
    anchor, backward = fused.anchor, fused.anchor.op == "conv2d_dx"
    geometry = geometry_of(window, backward)
    others: list[WinogradPlan] = []
    if options.winograd:
        others = winograd_plans(window, backward, device, prepared=prepared)
    candidates: list[PlanCandidate[ConvPlan | WinogradPlan]] = [
        *as_candidates(direct_plans(window, geometry, device)),
        *as_candidates(others, WINOGRAD_GAIN),
    ]
    key = f"{anchor.op} {window.key}{' prepared' if prepared else ''}"
    chosen = picked(options.pick, key, candidates)
    plan = chosen.plan
    if isinstance(plan, WinogradPlan):
        form = plan.filters if prepared else None
        return Choice(chosen.label, chosen.cycles, plan.scratch_bytes, spec=plan, prepared=form)
    spec = direct_spec(window, geometry, plan, size=anchor.result.type.size, plain=fused.plain)
    return Choice(chosen.label, chosen.cycles, spec.scratch_bytes, spec)


def _choose_gradient(
    window: ConvWindow, plain: bool, device: Device, options: KernelOptions
) -> Choice:
    others = winograd_gradient_plans(window, device) if options.winograd else []
    candidates: list[PlanCandidate[ConvPlan | WinogradGradientPlan]] = [
        *as_candidates(gradient_plans(window, device)),
        *as_candidates(others, WINOGRAD_GAIN),
    ]
    chosen = picked(options.pick, f"conv2d_dw {window.key}", candidates)
    plan = chosen.plan
    if isinstance(plan, WinogradGradientPlan):
        return Choice(chosen.label, chosen.cycles, plan.scratch_bytes, plan)
    spec = gradient_spec(window, plan, device, plain)
    return Choice(chosen.label, chosen.cycles, spec.scratch_bytes, spec)


def conv_kernel(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit a convolution, one of its gradients, or a fusion around one, as chosen."""
    spec = choice.spec
    if isinstance(spec, StridedSpec):
        return strided_kernel(node, spec, device)
    opened = open_fusion(node, device)
    match spec:
        case DotSpec() | StreamSpec() | TiledSpec() | AmxSpec():
            return product_kernel(opened, spec, device)
        case DepthwiseSpec():
            return depthwise_kernel(opened, spec, device)
        case WinogradPlan():
            return winograd_kernel(opened, window_of(opened.anchor), spec, device)
        case WinogradGradientPlan():
            return winograd_gradient_kernel(opened, window_of(opened.anchor), spec, device)
        case GradientSpec():
            return _weight_gradient(opened, spec, device)
    assert isinstance(spec, DirectSpec)
    return _convolution(opened, spec, device)


CONVOLUTION = KernelFamily(choose_conv, conv_kernel)


def _convolution(opened: Anchored, spec: DirectSpec, device: Device) -> Kernel:
    window, plan = spec.window, spec.plan
    macros = _geometry_macros(spec) | {
        "PE_BLOCK_SEGMENTS": spec.block,
        "PE_PARTIAL": int(spec.unfinished),
    }
    partial = opened.plain or ("scratch" if spec.sums else "NULL")
    scratch = [f"(float *)scratch + {spec.sums}", f"(float *)scratch + {spec.sums + spec.packed}"]
    arguments = ", ".join([*opened.names, partial, *scratch])
    return define_kernel(
        name=f"pe_f32_{opened.title}_{window}_{plan.tile}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, f"{SYMBOL}_run(w, &io, {arguments});", *opened.end],
        prelude=note(describe(opened.anchor.op, window)) + template(macros, opened.store, "conv"),
        scratch_bytes=spec.scratch_bytes,
    )


def _geometry_macros(spec: DirectSpec) -> dict[str, object]:
    g, window, plan = spec.geometry, spec.window, spec.plan
    order = tap_order(window, g.grids)
    return {
        **_common_macros(plan, g.columns, g.channels, window),
        **_window_macros(g.image, g.source, g.step),
        "PE_M": max(g.pixels),
        "PE_OTHER_M": min(g.pixels),
        "PE_GRIDS": len(g.grids),
        "PE_GRID_TABLE": _grid_table(g),
        "PE_SEGMENT_TABLE": ", ".join(str(offset) for offsets in g.segments for offset in offsets),
        "PE_ROWS": g.rows,
        "PE_OUT_H": g.result[0],
        "PE_OUT_W": g.result[1],
        "PE_OUT_STEP_H": g.out_step[0],
        "PE_OUT_STEP_W": g.out_step[1],
        "PE_TRANSPOSED": int(g.backward),
        "PE_TAPS": len(order),
        "PE_TAP_TABLE": ", ".join(map(str, order)),
        "PE_WINDOW_FLOATS": spec.windows,
    }


def _weight_gradient(opened: Anchored, spec: GradientSpec, device: Device) -> Kernel:
    """Windows of x, transposed, times dy."""
    window, plan = spec.window, spec.plan
    source = (*window.size, window.channels)
    macros = {
        **_common_macros(plan, window.group_features, window.group_channels, window),
        **_window_macros(spec.image, source, window.stride),
        **_sum_macros(window, spec.segments, spec.depth),
        "PE_PARTIAL": int(spec.unfinished),
        "PE_PART_FLOATS": spec.size,
        "PE_BLOCK_IMAGES": spec.images,
        "PE_WINDOW_FLOATS": spec.windows,
    }
    partial = "scratch" if spec.parts else (opened.plain or "NULL")
    arguments = ", ".join([*opened.names, partial, f"(float *)scratch + {spec.parts}"])
    return define_kernel(
        name=f"pe_f32_{opened.title}_{window}_{plan.tile}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, f"{SYMBOL}_run(w, &io, {arguments});", *opened.end],
        prelude=note(describe(opened.anchor.op, window))
        + template(macros, opened.store, "conv_dw"),
        scratch_bytes=spec.scratch_bytes,
    )


def _sum_macros(window: ConvWindow, segments: Sequence[int], depth: int) -> dict[str, object]:
    """Positions and result rows of a weight gradient."""
    return {
        "PE_M": depth,
        "PE_ROWS": window.output[0],
        "PE_COLUMNS": window.output[1],
        "PE_SEGMENTS": len(segments),
        "PE_SEGMENT_TABLE": ", ".join(map(str, segments)),
    }


def _grid_table(g: Geometry) -> str:
    """C initializers of the template's struct."""
    rows, first = [], 0
    for grid, offsets, depth in zip(g.grids, g.segments, g.depths, strict=True):
        numbers = [
            *(grid.rows.positions, grid.columns.positions),
            *(first, len(offsets), depth, grid.first_tap),
            *(grid.rows.out, grid.columns.out),
        ]
        first += len(offsets)
        rows.append(f"{{{', '.join(map(str, numbers))}}}")
    return ", ".join(rows)


def _common_macros(
    plan: ConvPlan, columns: int, channels: int, window: ConvWindow
) -> dict[str, object]:
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": plan.tile.lanes,
        "PE_MR": plan.tile.rows,
        "PE_NV": plan.tile.vectors,
        "PE_N": columns,
        "PE_IMAGES": window.images,
        "PE_GROUPS": window.groups,
        "PE_CHANNELS": channels,
        "PE_BLOCK_ROWS": plan.rows,
        "PE_SPLIT": f"PE_SPLIT_{plan.split}",
        "PE_THREADS": plan.threads,
    }


def _window_macros(
    image: ImageWindow, source: tuple[int, int, int], step: Pair
) -> dict[str, object]:
    return {
        "PE_SOURCE_H": source[0],
        "PE_SOURCE_W": source[1],
        "PE_SOURCE_C": source[2],
        "PE_COPY": int(image.copied),
        "PE_PIXEL": image.pixel,
        "PE_LINE": image.line,
        "PE_FIRST_H": image.first[0],
        "PE_FIRST_W": image.first[1],
        "PE_WINDOW_W": image.width,
        "PE_STEP_H": step[0],
        "PE_STEP_W": step[1],
        "PE_REACH_H": image.reach,
    }
