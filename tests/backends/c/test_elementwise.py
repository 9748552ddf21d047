"""Generated elementwise kernels agree with the NumPy oracle, for drawn shapes, under sanitizers."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.expression import CASTS
from pockengine.compiler.ir import (
    BOOL,
    F32,
    I32,
    I64,
    Builder,
    DType,
    Graph,
    Node,
    TensorType,
    Value,
)
from pockengine.compiler.ir.scalars import BF16_FORM, numbers_of
from pockengine.compiler.ops.elementwise import INTEGER_TOO
from pockengine.compiler.passes.kernels.fuse import Fuse
from pockengine.compiler.target import Target
from pockengine.tests.backends.c.anchors import check_on_arm, check_with_zig
from pockengine.tests.backends.c.harness import SANITIZED, Case, device_of, draw_array, run_cases

UNARY = ["neg", "abs", "sign", "exp", "log", "sqrt", "rsqrt", "reciprocal", "square", "relu"]
UNARY += ["sigmoid", "tanh", "hard_sigmoid", "hard_swish"]
UNARY += [
    "erf",
    "erfc",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "expm1",
    "log1p",
]
UNARY += ["floor", "ceil", "round", "trunc", "asinh", "acosh", "atanh"]
UNARY += ["lgamma", "digamma", "i0", "i1", "i0e", "i1e", "erf_inv"]
BINARY = [
    "pow",
    "atan2",
    "hypot",
    "igamma",
    "igammac",
    "igamma_da",
    "zeta",
    "rem",
    "binary_cross_entropy",
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
]
INTEGER = ["add", "sub", "mul", "maximum", "minimum", "quotient", "rem"]
INTEGER += ["bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"]
MASK = ["logical_and", "logical_or", "add", "mul", "maximum", "minimum"]
MASK += ["eq", "ne", "lt", "le", "gt", "ge"]
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]
ISAS = {"avx512": 16, "avx2": 8, "sse2": 4}


@st.composite
def broadcast_shapes(draw: st.DrawFn, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast with each other; the first has the full shape."""
    full = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 7, 16, 33]), min_size=0, max_size=4)))
    shapes = [full]
    for _ in range(count - 1):
        own = tuple(size if draw(st.booleans()) else 1 for size in full)
        shapes.append(own[draw(st.integers(0, len(own))) if draw(st.booleans()) else 0 :])
    return shapes


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """One elementwise node of any op and supported types."""
    kind = draw(
        st.sampled_from(
            ["unary", "binary", "integer", "whole", "compare", "where", "cast", "clamp", "mask"]
        )
    )
    a, b, c = draw(broadcast_shapes(3))
    g = Builder(Graph("case"))

    def take(name: str, shape: tuple[int, ...], dtype: DType = F32) -> Value:
        return g.input(name, TensorType(dtype, shape))

    if kind == "unary":
        return g.emit(draw(st.sampled_from(UNARY)), take("a", a))
    if kind == "binary":
        return g.emit(draw(st.sampled_from(BINARY)), take("a", b), take("b", a))
    if kind == "integer":
        dtype = draw(st.sampled_from([I32, I64]))
        op = draw(st.sampled_from(INTEGER))
        return g.emit(op, take("a", a, dtype), take("b", b, dtype))
    if kind == "whole":
        dtype = draw(st.sampled_from([I32, I64]))
        return g.emit(draw(st.sampled_from(sorted(INTEGER_TOO))), take("a", a, dtype))
    if kind == "mask":
        return g.emit(draw(st.sampled_from(MASK)), take("a", a, BOOL), take("b", b, BOOL))
    if kind == "compare":
        dtype = draw(st.sampled_from([F32, I32, I64]))
        return g.emit(draw(st.sampled_from(COMPARE)), take("a", a, dtype), take("b", b, dtype))
    if kind == "where":
        dtype = draw(st.sampled_from([F32, I32, I64, BOOL]))
        return g.emit("where", take("a", c, BOOL), take("b", a, dtype), take("c", b, dtype))
    if kind == "cast":
        source, target = draw(st.sampled_from([*CASTS, *((dtype, dtype) for dtype in DType)]))
        return g.emit("cast", take("a", a, source), dtype=target.value)
    return g.emit(draw(st.sampled_from(["clamp", "hardtanh"])), take("a", a), min=-0.5, max=1.0)


def case_of(node: Node, isa: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    arrays = [draw_array(rng, value) for value in node.operands]
    if node.op in ("log", "sqrt", "rsqrt", "pow", "log1p", "igamma", "igammac", "igamma_da"):
        arrays = [np.abs(array) + np.float32(0.01) for array in arrays]
    if node.op == "binary_cross_entropy":
        arrays = [np.abs(np.tanh(array)) * np.float32(0.99) for array in arrays]
    if node.op in ("acosh", "zeta"):
        arrays = [np.abs(array) + np.float32(1.01) for array in arrays]
    if node.op in ("asin", "acos", "atanh", "erf_inv"):
        arrays = [np.tanh(array) for array in arrays]
    if node.op in ("div", "reciprocal"):
        arrays[-1] = np.where(arrays[-1] == 0, np.float32(1), arrays[-1])
    return Case(node, CBackend(device_of(isa)).kernel(node), tuple(arrays))


def check(
    cases: list[Case], folder: Path, compiler: Sequence[str] = ("gcc", *SANITIZED, "-march=native")
) -> None:
    for case, runs in zip(cases, run_cases(cases, folder, compiler), strict=True):
        for results in runs:
            for result, expected in zip(results, case.expected, strict=True):
                np.testing.assert_allclose(
                    numbers_of(result),
                    numbers_of(expected),
                    rtol=2e-6,
                    atol=2e-6,
                    err_msg=repr(case.node),
                )


@settings(max_examples=6, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(drawn=st.lists(nodes(), min_size=25, max_size=40), isa=st.sampled_from(list(ISAS)))
def test_every_op_type_and_broadcast_agrees_with_the_oracle(
    drawn: list[Node], isa: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cases = [case_of(node, isa, seed) for seed, node in enumerate(drawn)]
    check(cases, tmp_path_factory.mktemp("kernels"))


def fused(build: Callable[..., Sequence[Value]], *shapes: tuple[int, ...]) -> Node:
    """Return the fusion node of the graph emitted by `build`."""
    graph = Graph("case")
    g = Builder(graph)
    results = build(g, *(g.input(f"x{i}", TensorType(F32, s)) for i, s in enumerate(shapes)))
    for index, result in enumerate(results):
        g.output(f"y{index}", result)
    Fuse(Target()).run(graph)
    assert [node.op for node in graph.nodes] == ["fusion"]
    return graph.nodes[0]


def test_fusions_with_several_results_and_invariant_operands(tmp_path: Path) -> None:
    def normalize(g: Builder, x: Value, scale: Value, shift: Value) -> list[Value]:
        y = g.add(g.mul(x, scale), shift)
        return [y, g.relu(y), g.gt(y, g.scalar(0.5))]

    shapes = [((9, 5, 24), (24,), (24,)), ((2, 3, 5, 7), (2, 1, 1, 7), ()), ((300,), (300,), (1,))]
    built = [fused(normalize, *each) for each in shapes]
    check([case_of(node, "avx512", i) for i, node in enumerate(built)], tmp_path)


def test_equal_kernels_of_different_nodes_have_one_symbol() -> None:
    first, second = (fused(lambda g, x: [g.relu(g.neg(x))], (4, 8)) for _ in range(2))
    second.results[0].name = "another"
    device = device_of("avx2")
    assert CBackend(device).kernel(first) == CBackend(device).kernel(second)


def test_casts_to_integers_saturate_and_wide_integers_keep_their_digits(tmp_path: Path) -> None:
    floats = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 2e19, -2e19, 1.9, -1.9], np.float32)
    whole = np.array([2**31, -(2**40), 2**62, -(2**63), 2**53 + 1, 7], np.int64)
    cases = []
    for data, source, targets in ((floats, F32, (I32, I64, BOOL)), (whole, I64, (F32, I32, BOOL))):
        for target in targets:
            g = Builder(Graph("case"))
            node = g.emit("cast", g.input("x", TensorType(source, data.shape)), dtype=target.value)
            kernel = CBackend(device_of("avx2")).kernel(node)
            cases.append(Case(node, kernel, (data,)))
    check(cases, tmp_path)


def test_casts_of_stored_types_agree_bit_for_bit(tmp_path: Path) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    codes = np.arange(256, dtype=np.uint8)
    edges = np.array([65504, 65519.99, 65520, 6.1e-5, 5.96e-8, 2.98e-8, 2.99e-8, 3.4e38, np.inf])
    rng = np.random.default_rng(0)
    many = np.exp2(rng.uniform(-30, 20, 40000)).astype(np.float32)
    ties = numbers_of(halves[:0x7C00].view(np.float16)).astype(np.float32)
    between = (ties[1:] + ties[:-1]) / 2
    floats = np.concatenate([edges, -edges, many, -many, ties, between, [np.nan, 0.0, -0.0]])
    stored = {
        DType.BF16: halves.view(BF16_FORM),
        DType.F16: halves.view(np.float16),
        DType.I8: codes.view(np.int8),
        DType.U8: codes,
        F32: floats.astype(np.float32),
        I32: np.arange(-70000, 70000, 7, dtype=np.int32),
    }
    cases = []
    for source, target in CASTS:
        if source not in stored or {source, target} <= {F32, I32, I64, BOOL}:
            continue
        g = Builder(Graph("case"))
        data = stored[source]
        node = g.emit("cast", g.input("x", TensorType(source, data.shape)), dtype=target.value)
        cases.append(Case(node, CBackend(device_of("avx2")).kernel(node), (data,)))
    for case, runs in zip(cases, run_cases(cases, tmp_path, ("gcc", "-march=native")), strict=True):
        for (result,) in runs:
            ours, theirs = numbers_of(result), numbers_of(case.expected[0])
            same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
            assert same.all(), (case.node, case.operands[0][~same][:5], ours[~same][:5])
            assert (np.signbit(ours) == np.signbit(theirs))[ours == ours].all(), case.node


@pytest.mark.parametrize(("device", "isa"), [("host", "avx2"), ("rpi4", "neon")])
def test_instructions_that_widen_f16_are_exact(device: str, isa: str, tmp_path: Path) -> None:
    """By zig's clang: gcc takes bit operations instead."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    g = Builder(Graph("case"))
    node = g.emit("cast", g.input("x", TensorType(DType.F16, halves.shape)), dtype="f32")
    cases = [Case(node, CBackend(device_of(isa)).kernel(node), (halves,))]
    if device == "rpi4":
        check_on_arm(cases, tmp_path, tolerance=1e-16)
    else:
        check_with_zig(cases, tmp_path, device, tolerance=1e-16)


def test_a_stored_type_is_rounded_inside_of_a_kernel_too(tmp_path: Path) -> None:
    def there_and_back(name: str) -> Callable[[Builder, Value], list[Value]]:
        def build(g: Builder, x: Value) -> list[Value]:
            stored = g.cast(g.mul(x, g.scalar(3.0)), dtype=name)
            return [stored, g.square(g.cast(stored, dtype="f32"))]

        return build

    built = [fused(there_and_back(name), (7, 33)) for name in ("i8", "u8")]
    check([case_of(node, "avx512", seed) for seed, node in enumerate(built)], tmp_path)


def test_division_of_integers_never_traps(tmp_path: Path) -> None:
    cases = []
    for dtype in (I32, I64):
        least = np.iinfo(dtype.numpy.name).min
        a = np.array([7, -7, 7, -7, 0, 5, -5, least, least, least], dtype.numpy)
        b = np.array([3, 3, -3, -3, 4, 0, 0, -1, 0, 10], dtype.numpy)
        for op in ("quotient", "rem"):
            g = Builder(Graph("case"))
            operands = (g.input(name, TensorType(dtype, a.shape)) for name in "ab")
            node = g.emit(op, *operands)
            cases.append(Case(node, CBackend(device_of("sse2")).kernel(node), (a, b)))
    check(cases, tmp_path)


def test_arithmetic_of_integers_wraps(tmp_path: Path) -> None:
    cases = []
    for dtype in (I32, I64):
        limits = np.iinfo(dtype.numpy.name)
        a = np.array([limits.max, limits.min, limits.min, limits.max, 7], dtype.numpy)
        b = np.array([limits.max, limits.min, 1, -1, -9], dtype.numpy)
        for op, count in {"add": 2, "sub": 2, "mul": 2, "neg": 1, "square": 1, "abs": 1}.items():
            g = Builder(Graph("case"))
            node = g.emit(op, *(g.input(name, TensorType(dtype, a.shape)) for name in "ab"[:count]))
            kernel = CBackend(device_of("sse2")).kernel(node)
            cases.append(Case(node, kernel, (a, b)[:count]))
    check(cases, tmp_path)


def test_nan_passes_through_activations(tmp_path: Path) -> None:
    g = Builder(Graph("case"))
    data = np.array([np.nan, 1, -1, np.inf, -np.inf], np.float32)
    cases = []
    for op in ("relu", "hard_swish", "hard_sigmoid", "sigmoid", "tanh", "exp", "hardtanh"):
        node = g.emit(op, g.input(op, TensorType(F32, (5,))))
        cases.append(Case(node, CBackend(device_of("sse2")).kernel(node), (data,)))
    check(cases, tmp_path)


def test_shifts_by_more_than_the_width_leave_nothing(tmp_path: Path) -> None:
    cases = []
    for dtype in (I32, I64):
        width = dtype.numpy.itemsize * 8
        a = np.array([5, -5, 1, -1, np.iinfo(dtype.numpy.name).min, 7], dtype.numpy)
        b = np.array([1, 1, width - 1, width, -1, 1000], dtype.numpy)
        for op in ("shift_left", "shift_right"):
            g = Builder(Graph("case"))
            node = g.emit(op, *(g.input(name, TensorType(dtype, a.shape)) for name in "ab"))
            cases.append(Case(node, CBackend(device_of("sse2")).kernel(node), (a, b)))
    check(cases, tmp_path)


def test_bits_of_floats_are_read_exactly(tmp_path: Path) -> None:
    numbers = np.array([0.0, -0.0, 1.0, -2.5, np.inf, np.nan, 1e-45], np.float32)
    cases = []
    for op, data, dtype in (("float_bits", numbers, F32), ("bits_float", numbers.view("i4"), I32)):
        g = Builder(Graph("case"))
        node = g.emit(op, g.input("a", TensorType(dtype, data.shape)))
        cases.append(Case(node, CBackend(device_of("sse2")).kernel(node), (data,)))
    check(cases, tmp_path)
