"""ONNX's operators that read and write at indices, and Einsum: values, and gradients in training.

Their values are also compared with the standard's own cases: tests/conformance.
"""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from pockengine.compiler.compile import Training, compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.errors import ImportModelError
from pockengine.frontends import from_onnx
from pockengine.tests.frontends.onnx.models import check, make, random

PAIRS = np.asarray([[0, 1], [2, -1], [0, 1]])
APART = np.asarray([[0, 1], [2, -1], [1, 0]])
ROWS = np.asarray([[0, 2, -1, 1], [1, 1, 0, 2]])


def written(op: str, index: np.ndarray, updates: tuple[int, ...], **attrs: Any) -> ModelProto:
    """Write x times a weight into a table, and train both."""
    weights = {"table": random(3, 4, 2), "gain": random(*updates), "index": index}
    nodes = [
        helper.make_node("Mul", ["x", "gain"], ["updates"]),
        helper.make_node(op, ["table", "index", "updates"], ["y"], **attrs),
    ]
    return make(nodes, {"x": updates}, {"y": (3, 4, 2)}, weights, opset=18)


CASES = {
    "put": written("ScatterND", APART, (3, 2)),
    "add": written("ScatterND", PAIRS, (3, 2), reduction="add"),
    "max": written("ScatterND", PAIRS, (3, 2), reduction="max"),
    "min": written("ScatterND", PAIRS, (3, 2), reduction="min"),
    "mul": written("ScatterND", PAIRS, (3, 2), reduction="mul"),
    "rows": written("ScatterND", PAIRS[:2, :1], (2, 4, 2)),
    "elements": written("ScatterElements", ROWS[:, :, None], (2, 4, 1), axis=0),
    "added": written("ScatterElements", ROWS[:, :, None] % 2, (2, 4, 1), axis=2, reduction="add"),
}


@pytest.mark.parametrize("name", CASES)
def test_writes_equal_the_reference_and_have_its_slopes(name: str) -> None:
    model = CASES[name]
    x = random(*[size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim])
    check(model, {"x": x})
    graph = from_onnx(model, loss="mse")
    step = compile_program(graph, Training(optimizer=Sgd()), check=True).entries["train"].graph
    before = {param: held.data.copy() for param, held in graph.params.items()}
    inputs = {"x": x, "target": np.zeros((3, 4, 2), np.float32), "lr": np.float32(1)}
    params = {param: array.copy() for param, array in before.items()}

    run(step, inputs, params)

    way = {param: random(*array.shape, seed=9, scale=1e-2) for param, array in before.items()}
    ends = [
        float(
            run(graph, inputs, {key: array + sign * way[key] for key, array in before.items()})[
                "loss"
            ]
        )
        for sign in (1, -1)
    ]
    slope = sum(float(((before[key] - params[key]) * way[key]).sum()) for key in before)
    assert slope == pytest.approx((ends[0] - ends[1]) / 2, rel=2e-2)


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_vectors_of_indices_read_slices(batch_dims: int) -> None:
    node = helper.make_node("GatherND", ["x", "index"], ["y"], batch_dims=batch_dims)
    shape = (3, 1, 2) if batch_dims else (3, 1, 5)
    index = np.asarray([[[0, 1]], [[2, -2]], [[1, 0]]])
    check(
        make([node], {"x": (3, 4, 5)}, {"y": shape[: 3 - batch_dims]}, {"index": index}),
        {"x": random(3, 4, 5)},
    )


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bqhd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 4, 5)]),
        ("...ij,jk", [(2, 3, 4, 5), (5, 2)]),
        ("...i,...j->...ij", [(2, 1, 3), (4, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ijk->k", [(2, 3, 4)]),
        ("iji->j", [(3, 4, 3)]),
        ("ij,kl->", [(2, 3), (4, 5)]),
        ("bi , bi -> b", [(4, 5), (4, 5)]),
        ("abc,cd,def->bf", [(2, 3, 4), (4, 5), (5, 6, 7)]),
    ],
)
def test_einsum_equals_numpy(equation: str, shapes: list[tuple[int, ...]]) -> None:
    names = [f"x{index}" for index in range(len(shapes))]
    arrays = {name: random(*shape) for name, shape in zip(names, shapes, strict=True)}
    expected = np.einsum(equation, *arrays.values())
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    inputs = dict(zip(names, shapes, strict=True))

    found = run(from_onnx(make([node], inputs, {"y": expected.shape})), arrays)

    np.testing.assert_allclose(found["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes"), [("ij,jk", [(2, 3)]), ("ii->i", [(2, 3)]), ("ij->ik", [(2, 3)])]
)
def test_equations_that_do_not_fit_are_refused(
    equation: str, shapes: list[tuple[int, ...]]
) -> None:
    node = helper.make_node("Einsum", ["x"], ["y"], equation=equation)
    with pytest.raises(ImportModelError, match="Einsum in y: the einsum"):
        from_onnx(make([node], {"x": shapes[0]}, {"y": (2, 2)}))
