"""Random applications of each op, drawn by hypothesis.

`draw_case(op)` returns operand types and attrs. Sizes are small and odd: 1, 2, 3, 5, 7.
"""

import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from pockengine.compiler.ir import BOOL, F32, I64, TensorType
from pockengine.compiler.ops.conv import window_output
from pockengine.tests.compiler.op_case import OpCase
from pockengine.tests.compiler.op_torch import BINARY, COMPARISONS, MATRICES, STEPS, UNARY

Draw = Callable[[Any], Any]
SIZES = st.sampled_from([1, 2, 3, 5, 7])


def _t(*shape: int) -> TensorType:
    return TensorType(F32, shape)


DOMAINS = {
    **dict.fromkeys(("log", "sqrt", "rsqrt", "reciprocal", "div", "pow", "log1p"), "positive"),
    **dict.fromkeys(("lgamma", "digamma", "igamma", "igammac", "igamma_da"), "positive"),
    **dict.fromkeys(("asin", "acos", "atanh", "tan", "erf_inv"), "small"),
    **dict.fromkeys(("acosh", "zeta"), "above one"),
    "binary_cross_entropy": "share",
}


@st.composite
def _broadcastable(draw: Draw, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast together: leading dimensions are dropped, or dimensions set to 1."""
    shape = draw(st.lists(SIZES, min_size=0, max_size=4))
    shapes = []
    for _ in range(count):
        trailing = shape[draw(st.integers(0, len(shape))) :]
        shapes.append(tuple(size if draw(st.booleans()) else 1 for size in trailing))
    return shapes


@st.composite
def _elementwise(draw: Draw, op: str, count: int, attrs: dict[str, Any]) -> OpCase:
    shapes = draw(_broadcastable(count))
    types = [TensorType(F32, shape) for shape in shapes]
    if op == "where":
        types[0] = TensorType(BOOL, shapes[0])
    return OpCase(op, tuple(types), attrs, DOMAINS.get(op, "any"))


@st.composite
def _reduction(draw: Draw, op: str) -> OpCase:
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=4)))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    keep = draw(st.booleans())
    return OpCase(op, (_t(*shape),), {"axes": tuple(sorted(axes)), "keepdims": keep})


@st.composite
def _matmul(draw: Draw, op: str) -> OpCase:
    m, k, n = (draw(SIZES) for _ in range(3))
    ta, tb = draw(st.booleans()), draw(st.booleans())
    batch = draw(st.lists(SIZES, max_size=2))
    a = (*batch, *((k, m) if ta else (m, k)))
    b = (n, k) if tb else (k, n)
    if draw(st.booleans()):
        b = (*batch, *b)
    return OpCase(op, (_t(*a), _t(*b)), {"transpose_a": ta, "transpose_b": tb})


@st.composite
def _window(draw: Draw, kernel: tuple[int, int]) -> tuple[tuple[int, int], dict[str, Any]]:
    """Draw an image size that the window fits into, with its stride, padding and dilation."""
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    padding = tuple(draw(st.integers(0, 2)) for _ in range(4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    low = [max(1, reach[0] - padding[0] - padding[1]), max(1, reach[1] - padding[2] - padding[3])]
    size = (draw(st.integers(low[0], low[0] + 4)), draw(st.integers(low[1], low[1] + 4)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    return size, {"stride": stride, "padding": padding, "dilation": dilation}


@st.composite
def _conv(draw: Draw, op: str) -> OpCase:
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    size, attrs = draw(_window(kernel))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    i, o = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = _t(draw(st.integers(1, 2)), *size, groups * i)
    w = _t(*kernel, i, groups * o)
    return OpCase(op, (x, w), {**attrs, "groups": groups})


@st.composite
def _pool(draw: Draw, op: str) -> OpCase:
    kernel = (draw(st.integers(2, 3)), draw(st.integers(2, 3)))
    size, attrs = draw(_window(kernel))
    attrs["padding"] = tuple(draw(st.integers(0, 1)) for _ in range(4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, attrs["dilation"], strict=True)]
    size = (max(size[0], reach[0]), max(size[1], reach[1]))
    if op == "avg_pool2d":
        del attrs["dilation"]
        attrs["count_include_pad"] = draw(st.booleans())
    return OpCase(op, (_t(2, *size, draw(SIZES)),), {**attrs, "kernel": kernel})


@st.composite
def _movement(draw: Draw, op: str) -> OpCase:
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=4)))
    rank = len(shape)
    attrs: dict[str, Any]
    if op == "reshape":
        attrs = {"shape": (math.prod(shape[:1]), math.prod(shape[1:]))}
    elif op == "transpose":
        attrs = {"perm": tuple(draw(st.permutations(range(rank))))}
    elif op == "broadcast_to":
        attrs = {"shape": (3, *(size if size > 1 else 4 for size in shape))}
    elif op == "pad":
        low, high = (tuple(draw(st.integers(0, 2)) for _ in shape) for _ in range(2))
        attrs = {"low": low, "high": high, "value": 0.5}
    elif op == "cumsum":
        attrs = {"axis": draw(st.integers(0, rank - 1)), "reverse": draw(st.booleans())}
    elif op == "reverse":
        attrs = {"axes": tuple(draw(st.sets(st.integers(0, rank - 1))))}
    elif op == "pick":
        axis = draw(st.integers(0, rank - 1))
        index = draw(st.sets(st.integers(0, shape[axis] - 1), min_size=1))
        attrs = {"axis": axis, "index": tuple(sorted(index))}
    elif op in ("layer_norm", "rms_norm"):
        attrs = {"eps": 1e-3}
    else:
        start = tuple(draw(st.integers(0, size - 1)) for size in shape)
        spans = zip(start, shape, strict=True)
        stop = tuple(draw(st.integers(first + 1, size)) for first, size in spans)
        attrs = {"start": start, "stop": stop, "step": tuple(draw(SIZES) for _ in shape)}
    return OpCase(op, (_t(*shape),), attrs)


@st.composite
def _indexed(draw: Draw, op: str) -> OpCase:
    shape = draw(st.lists(SIZES, min_size=1, max_size=3))
    axis = draw(st.integers(0, len(shape) - 1))
    classes = shape[axis]
    if op in ("take", "take_add"):
        index = tuple(draw(st.lists(SIZES, max_size=2)))
        taken = (_t(*shape[:axis], *index, *shape[axis + 1 :]),) if op == "take_add" else ()
        types = (_t(*shape), *taken, TensorType(I64, index))
        return OpCase(op, types, {"axis": axis}, classes=classes)
    index = (*shape[:axis], draw(SIZES), *shape[axis + 1 :])
    attrs: dict[str, Any] = {"axis": axis}
    x = _t(*shape)
    if op == "take_along_dx":
        attrs["input_shape"], x = tuple(shape), _t(*index)
    return OpCase(op, (x, TensorType(I64, index)), attrs, classes=classes)


@st.composite
def _conv_transpose(draw: Draw, op: str) -> OpCase:
    forward = draw(_conv("conv2d"))
    x, w = forward.types
    size = window_output(x.shape[1:3], w.shape[:2], forward.attrs)
    dy = _t(x.shape[0], *size, w.shape[3])
    return OpCase(op, (dy, w), {**forward.attrs, "input_shape": x.shape})


@st.composite
def _concat(draw: Draw, op: str) -> OpCase:
    shape = draw(st.lists(SIZES, min_size=1, max_size=3))
    axis = draw(st.integers(0, len(shape) - 1))
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        parts.append(_t(*shape[:axis], draw(SIZES), *shape[axis + 1 :]))
    return OpCase(op, tuple(parts), {"axis": axis})


@st.composite
def _rows(draw: Draw, op: str) -> OpCase:
    rows, classes = draw(SIZES), draw(SIZES)
    types: tuple[TensorType, ...] = (_t(rows, classes),)
    if op == "cross_entropy":
        types = (*types, TensorType(I64, (rows,)))
    return OpCase(op, types, {}, classes=classes)


@st.composite
def _ctc(draw: Draw, op: str) -> OpCase:
    """Labels and lengths up to 2; the blank is the last class, which is never a label."""
    samples, labels = draw(st.integers(1, 3)), draw(st.integers(2, 3))
    logits = _t(draw(st.integers(2, 5)), samples, 4)
    lengths = TensorType(I64, (samples,))
    types = (logits, TensorType(I64, (samples, labels)), lengths, lengths)
    return OpCase(op, types, {"blank": 3}, classes=3)


@st.composite
def _matrices(draw: Draw, op: str) -> OpCase:
    batch, size = draw(st.lists(st.integers(1, 2), max_size=2)), draw(st.integers(1, 4))
    columns = {"svd": 4, "lu": size, "qr": size}.get(op)
    rows = size * draw(st.integers(1, 2)) if op == "eig" else size
    types = [_t(*batch, rows, size if columns is None else draw(st.integers(1, columns)))]
    attrs: dict[str, Any] = {}
    if op.endswith("solve"):
        types.append(_t(*batch, size, draw(st.integers(1, 3))))
    if op == "triangular_solve":
        attrs = {name: draw(st.booleans()) for name in ("lower", "transpose", "unit")}
    return OpCase(op, tuple(types), attrs, "graded")


@st.composite
def _batch_norm(draw: Draw, op: str) -> OpCase:
    channels = draw(SIZES)
    x = _t(draw(st.integers(2, 5)), draw(SIZES), draw(SIZES), channels)
    return OpCase(op, (x, _t(channels), _t(channels)), {"eps": 1e-3})


@st.composite
def _attention(draw: Draw, op: str) -> OpCase:
    """Heads with or without shared keys, with either kind of mask or none, possibly additive."""
    batch, groups, share = (draw(st.integers(1, 2)) for _ in range(3))
    rows, columns, size, width = (draw(SIZES) for _ in range(4))
    types = [
        _t(batch, rows, groups * share, size),
        _t(batch, columns, groups, size),
        _t(batch, columns, groups, width),
    ]
    dtype = draw(st.sampled_from((None, F32, BOOL)))
    if dtype is not None:
        scores = (batch, groups * share, rows, columns)
        shape = tuple(draw(st.sampled_from((1, full))) for full in scores)
        types.append(TensorType(dtype, shape))
    hidden = draw(st.sampled_from((-2.0, -math.inf))) if dtype is not BOOL else -2.0
    attrs = {"scale": draw(st.sampled_from((1.0, 0.5))), "causal": draw(st.booleans())}
    return OpCase(op, tuple(types), {**attrs, "hidden": hidden})


def draw_case(op: str) -> st.SearchStrategy[OpCase]:
    """Strategy for random applications of `op`."""
    if op in UNARY or op in STEPS:
        return _elementwise(op, 1, {})
    if op in BINARY or op in COMPARISONS or op == "rem":
        return _elementwise(op, 2, {})
    special: dict[str, Callable[[], st.SearchStrategy[OpCase]]] = {
        "clamp": lambda: _elementwise(op, 1, {"min": -0.7, "max": 1.3}),
        "hardtanh": lambda: _elementwise(op, 1, {"min": 0.0, "max": 1.5}),
        "where": lambda: _elementwise(op, 3, {}),
        "matmul": lambda: _matmul(op),
        "conv2d": lambda: _conv(op),
        "conv2d_dx": lambda: _conv_transpose(op),
        "concat": lambda: _concat(op),
        "attention": lambda: _attention(op),
        "batch_norm": lambda: _batch_norm(op),
        "ctc_loss": lambda: _ctc(op),
    }
    if op in special:
        return special[op]()
    if op in MATRICES:
        return _matrices(op)
    families: dict[str, Callable[[str], st.SearchStrategy[OpCase]]] = {
        "reduce_": _reduction,
        "max_pool": _pool,
        "avg_pool": _pool,
        "take": _indexed,
    }
    for prefix, family in families.items():
        if op.startswith(prefix):
            return family(op)
    return _rows(op) if op in ("softmax", "log_softmax", "cross_entropy") else _movement(op)
