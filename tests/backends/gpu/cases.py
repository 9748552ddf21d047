"""Sizes at the limits of tiles, trees and groups: equal, below, above, and one; stored weights."""

from typing import Any

from pockengine.compiler.ir import BOOL, F32, I64, Graph, TensorType
from pockengine.compiler.ops.attention import GRADIENTS
from pockengine.compiler.storage import Storage
from pockengine.tests.compiler.every_op import graph_of
from pockengine.tests.compiler.op_case import OpCase
from pockengine.tests.compiler.transformers import llama_net

NN: dict[str, Any] = {}
TN, NT = {"transpose_a": True}, {"transpose_b": True}
TT = {**TN, **NT}
WIDE = {"stride": (2, 1), "padding": (1, 2, 0, 1), "dilation": (1, 2)}


def floats(*shape: int) -> TensorType:
    return TensorType(F32, shape)


PRODUCTS = [
    OpCase("matmul", (floats(*a), floats(*b)), attrs)
    for a, b, attrs in (
        ((1, 1), (1, 1), NN),
        ((16, 16), (16, 16), NN),
        ((17, 33), (33, 65), NN),
        ((64, 16), (16, 64), NN),
        ((65, 70), (70, 130), NN),
        ((33, 40), (33, 20), TN),
        ((40, 33), (20, 33), NT),
        ((33, 40), (20, 33), TT),
        ((3, 2, 5, 7), (7, 4), NN),
        ((3, 2, 5, 7), (3, 2, 7, 4), NN),
        ((3, 2, 5, 7), (2, 7, 4), NN),
        ((2, 5, 7), (3, 1, 7, 4), NN),
        ((5, 777), (777, 20), NN),
        ((3, 2, 5, 1030), (3, 2, 1030, 4), NN),
    )
]
CONVOLUTIONS = [
    OpCase("conv2d", (floats(*x), floats(*w)), attrs)
    for x, w, attrs in (
        ((2, 9, 9, 3), (3, 3, 3, 20), {"padding": (1, 1, 1, 1)}),
        ((1, 8, 9, 4), (3, 2, 4, 17), WIDE),
        ((2, 8, 9, 8), (3, 3, 2, 12), {**WIDE, "groups": 4}),
        ((2, 8, 9, 40), (3, 3, 1, 40), {**WIDE, "groups": 40}),
        ((2, 8, 9, 8), (1, 1, 8, 70), {"stride": (2, 2)}),
        ((2, 8, 9, 4), (3, 3, 1, 8), {**WIDE, "groups": 4}),
    )
]
TREES = [
    OpCase(op, (floats(*shape),), {"axes": axes})
    for op in ("reduce_sum", "reduce_max")
    for shape, axes in (((300, 3), (0,)), ((3, 300), (1,)), ((40, 70), (0,)), ((7, 9, 40), (0, 2)))
]
ROWS = [
    OpCase(op, (floats(3, columns),), attrs)
    for columns in (1, 32, 33, 300)
    for op, attrs in (("softmax", NN), ("log_softmax", NN), ("layer_norm", {"eps": 1e-5}))
]
EMBEDDINGS = [
    OpCase(
        "take_dx",
        (floats(*before, count, 5), TensorType(I64, (count,))),
        {"axis": len(before), "input_shape": (*before, 300, 5)},
    )
    for before, count in (((), 1), ((), 300), ((3,), 128), ((2,), 129))
]
"""Some indices occur twice."""
LABELS = [
    OpCase("cross_entropy", (floats(rows, 300), TensorType(I64, (rows,))), NN, classes=300)
    for rows in (1, 300)
]


def attention_cases(
    heads: int,
    groups: int,
    rows: int,
    size: int,
    columns: int | None = None,
    width: int | None = None,
    mask: TensorType | None = None,
    **attrs: Any,
) -> list[OpCase]:
    """Attention of two samples, and its gradients."""
    columns, width = columns or rows, width or size
    types = (
        floats(2, rows, heads, size),
        floats(2, columns, groups, size),
        floats(2, columns, groups, width),
        *([mask] if mask else []),
    )
    attrs = {"scale": 0.3, **attrs}
    trailing = floats(2, rows, heads, width), *types[:3], floats(2, rows, heads, 2)
    operands = (*trailing, floats(2, rows, heads, 1), *types[3:])
    gradients = [OpCase(op, operands, attrs) for op in GRADIENTS]
    return [OpCase("attention", types, attrs), *gradients]


ATTENTION = [
    *attention_cases(1, 1, 1, 1),
    *attention_cases(4, 2, 64, 16, causal=True),
    *attention_cases(2, 2, 65, 17, 130, 33, TensorType(BOOL, (1, 1, 65, 130)), hidden=-3.0),
    *attention_cases(3, 1, 130, 64, 65, 64, floats(2, 1, 1, 65)),
    *attention_cases(2, 1, 70, 8, 140, 130, floats(2, 2, 70, 140), causal=True),
    *attention_cases(1, 1, 66, 256, causal=True, hidden=-1e30),
]
"""Row and column counts below, equal to and above a tile; every kind of mask; the largest head."""


def _gradients(case: OpCase) -> list[OpCase]:
    graph = graph_of(case)
    dy, (x, w) = graph.outputs["y0"].type, case.types
    return [
        OpCase("conv2d_dx", (dy, w), {**case.attrs, "input_shape": x.shape}),
        OpCase("conv2d_dw", (x, dy), {**case.attrs, "weight_shape": w.shape}),
    ]


BACKWARD = [gradient for case in CONVOLUTIONS for gradient in _gradients(case)]
KINDS = {
    "products": PRODUCTS,
    "convolutions": [*CONVOLUTIONS, *BACKWARD],
    "trees": TREES,
    "rows": [*ROWS, *LABELS],
    "embeddings": EMBEDDINGS,
    "attention": ATTENTION,
}

STORED: dict[str, tuple[Graph, dict[str, Any]]] = {
    f"llama-{form}": (llama_net(), {"scheme": "lora-4", "storage": Storage(weights=form)})
    for form in ("int4", "int8", "bf16", "f16")
}
"""Trainings with frozen weights in fewer bits."""
