"""Random applications of any op, with operand data and a graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pockengine.compiler.ir import BOOL, F32, I32, I64, Builder, DType, Graph, TensorType
from pockengine.compiler.ir.blocks import BLOCK, Blocks
from pockengine.compiler.ops import lookup
from pockengine.compiler.ops.attention import GRADIENTS
from pockengine.compiler.ops.conv import window_output
from pockengine.tests.compiler.op_case import OpCase
from pockengine.tests.compiler.op_cases import draw_case

Draw = Callable[[Any], Any]


def _conv_dw(draw: Draw) -> OpCase:
    case = draw(draw_case("conv2d"))
    x, w = case.types
    size = window_output(x.shape[1:3], w.shape[:2], case.attrs)
    dy = TensorType(F32, (x.shape[0], *size, w.shape[3]))
    return OpCase("conv2d_dw", (x, dy), {**case.attrs, "weight_shape": w.shape})


def _gradient_of_pool(op: str) -> Callable[[Draw], OpCase]:
    def case(draw: Draw) -> OpCase:
        forward = draw(draw_case(op))
        (x,) = forward.types
        (y,) = lookup(op).infer((x,), lookup(op).complete_attrs(forward.attrs))
        if op == "max_pool2d":
            return OpCase("max_pool2d_dx", (x, y), forward.attrs)
        return OpCase("avg_pool2d_dx", (y,), {**forward.attrs, "input_shape": x.shape})

    return case


def _gradient_of_rows(op: str) -> Callable[[Draw], OpCase]:
    def case(draw: Draw) -> OpCase:
        (x,) = draw(draw_case("layer_norm")).types
        return OpCase(op, (x, x, x.with_shape((*x.shape[:-1], 1))), {})

    return case


def _cross_entropy_dx(draw: Draw) -> OpCase:
    case = draw(draw_case("cross_entropy"))
    return OpCase("cross_entropy_dx", (*case.types, TensorType(F32, ())), {}, classes=case.classes)


def _take_dx(draw: Draw) -> OpCase:
    case = draw(draw_case("take"))
    (y,) = lookup("take").infer(case.types, case.attrs)
    attrs = {**case.attrs, "input_shape": case.types[0].shape}
    return OpCase("take_dx", (y, case.types[1]), attrs, classes=case.classes)


def _channels(op: str, count: int) -> Callable[[Draw], OpCase]:
    """Batch-shaped operands, and vectors over their channels."""

    def case(draw: Draw) -> OpCase:
        shape = tuple(draw(st.lists(st.integers(1, 5), min_size=2, max_size=4)))
        x, vector = TensorType(F32, shape), TensorType(F32, shape[-1:])
        return OpCase(op, (x,) if count == 1 else (x, x, vector, vector), {})

    return case


def _gradient_of_attention(op: str) -> Callable[[Draw], OpCase]:
    def case(draw: Draw) -> OpCase:
        forward = draw(draw_case("attention"))
        q, k, v, *mask = forward.types
        attrs = lookup("attention").complete_attrs(forward.attrs)
        y, stats = lookup("attention").infer(forward.types, attrs)
        delta = y.with_shape((*y.shape[:3], 1))
        return OpCase(op, (y, q, k, v, stats, delta, *mask), forward.attrs)

    return case


def _dropout(draw: Draw) -> OpCase:
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    types = (TensorType(F32, shape), TensorType(I32, ()))
    return OpCase("dropout", types, {"p": draw(st.floats(0, 0.9) | st.just(1.0)), "stream": 3})


def _of_types(op: str, of: DType, count: int, **attrs: Any) -> Callable[[Draw], OpCase]:
    """Operands of one shape."""

    def case(draw: Draw) -> OpCase:
        shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
        axis = {"axis": draw(st.integers(0, len(shape) - 1))} if op == "argmax" else {}
        return OpCase(op, (TensorType(of, shape),) * count, {**attrs, **axis}, classes=4)

    return case


def _random_uniform(draw: Draw) -> OpCase:
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    return OpCase("random_uniform", (TensorType(I32, ()),), {"shape": shape, "stream": 7})


def _decode_blocks(draw: Draw) -> OpCase:
    """Weights of 4 or 8 bits, with one or two blocks along the axis."""
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    axis = draw(st.integers(0, len(shape) - 1))
    shape[axis] = BLOCK * draw(st.integers(1, 2))
    blocks = Blocks(draw(st.sampled_from((4, 8))), axis)
    attrs = {"bits": blocks.bits, "axis": axis}
    return OpCase("decode_blocks", blocks.types(tuple(shape)), attrs)


BITS = ("bit_and", "bit_or", "bit_xor", "shift_left", "shift_right")

CASES: dict[str, Callable[[Draw], OpCase]] = {
    "conv2d_dw": _conv_dw,
    "max_pool2d_dx": _gradient_of_pool("max_pool2d"),
    "avg_pool2d_dx": _gradient_of_pool("avg_pool2d"),
    "layer_norm_dx": _gradient_of_rows("layer_norm_dx"),
    "rms_norm_dx": _gradient_of_rows("rms_norm_dx"),
    "cross_entropy_dx": _cross_entropy_dx,
    "take_dx": _take_dx,
    **{op: _gradient_of_attention(op) for op in GRADIENTS},
    "moments": _channels("moments", 1),
    "batch_norm_sums": _channels("batch_norm_sums", 4),
    "dropout": _dropout,
    "random_uniform": _random_uniform,
    "decode_blocks": _decode_blocks,
    "argmax": _of_types("argmax", F32, 1),
    "cast": _of_types("cast", F32, 1, dtype="i32"),
    "logical_and": _of_types("logical_and", BOOL, 2),
    "logical_not": _of_types("logical_not", BOOL, 1),
    "logical_or": _of_types("logical_or", BOOL, 2),
    "quotient": _of_types("quotient", I64, 2),
    **{op: _of_types(op, I64, 2) for op in BITS},
    "float_bits": _of_types("float_bits", F32, 1),
    "bits_float": _of_types("bits_float", I32, 1),
    "stop_gradient": _of_types("stop_gradient", F32, 1),
}
"""Cases of the ops that `draw_case` does not support."""


def case_of(op: str, draw: Draw) -> OpCase:
    """Draw an application of an op."""
    return CASES[op](draw) if op in CASES else draw(draw_case(op))


def arrays_of(case: OpCase, seed: int) -> list[np.ndarray]:
    """Draw operand data, with a dropout seed, some ignored labels and ties."""
    rng = np.random.default_rng(seed)
    if case.op == "random_uniform":
        return [np.int32(-seed)]
    if case.op == "decode_blocks":
        blocks = Blocks(case.attrs["bits"], case.attrs["axis"])
        shape = blocks.shape(case.types[0].shape)
        return list(blocks.encode(rng.standard_normal(shape).astype(np.float32)))
    if case.op == "quotient" or case.op in BITS:
        return [rng.integers(-9, 9, case.types[0].shape) for _ in case.types]
    if case.op == "bits_float":
        return [np.float32(rng.standard_normal(case.types[0].shape)).view(np.int32)]
    if case.op == "dropout":
        return [rng.standard_normal(case.types[0].shape).astype(np.float32), np.int32(seed)]
    arrays = case.arrays(seed)
    if case.op.startswith("cross_entropy"):
        arrays[1] = np.where(rng.random(arrays[1].shape) < 0.2, -100, arrays[1])
    if case.op in GRADIENTS:  # row maxima and sums
        arrays[4] = np.abs(arrays[4]) + 10
    if case.op in ("max_pool2d", "max_pool2d_dx") and arrays[0].size > 3:
        arrays[0].flat[rng.integers(arrays[0].size, size=2)] = np.nan, 0.5
        arrays[0] = np.round(arrays[0])  # some maxima are equal
    return arrays


def graph_of(case: OpCase) -> Graph:
    """Build a graph of only this op, with inputs x0, x1, ... and outputs y0, y1, ..."""
    g = Builder(Graph("case"))
    inputs = [g.input(f"x{place}", type_) for place, type_ in enumerate(case.types)]
    for place, value in enumerate(g.emit(case.op, *inputs, **case.attrs).results):
        g.output(f"y{place}", value)
    return g.graph
