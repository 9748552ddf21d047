"""ONNX's indexing operators and Einsum: values, and gradients in training.

tests/conformance also compares their values with ONNX's own test cases.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator
from onnxruntime import InferenceSession

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.model import from_onnx
from pockengine.tests.frontends.onnx.models import check, check_slopes, make, outputs_of, random

PAIRS = np.asarray([[0, 1], [2, -1], [0, 1]])
APART = np.asarray([[0, 1], [2, -1], [1, 0]])
ROWS = np.asarray([[0, 2, -1, 1], [1, 1, 0, 2]])


def written(op: str, index: np.ndarray, updates: tuple[int, ...], **attrs: Any) -> ModelProto:
    """Write x times a weight into a table; the weight and the table train."""
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
def test_writes_and_their_gradients_equal_the_reference(name: str) -> None:
    model = CASES[name]
    x = random(*[size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim])
    check(model, {"x": x})
    graph = from_onnx(model, loss="mse")
    step = compile_program(graph, Training(optimizer=Sgd()), check=True).entries["train"].graph
    before = {param: value.data.copy() for param, value in graph.params.items()}
    inputs = {"x": x, "target": np.zeros((3, 4, 2), np.float32), "lr": np.float32(1)}
    params = {param: array.copy() for param, array in before.items()}

    run(step, inputs, params)

    move = {param: random(*array.shape, seed=9, scale=1e-2) for param, array in before.items()}
    ends = [
        float(
            run(graph, inputs, {key: array + sign * move[key] for key, array in before.items()})[
                "loss"
            ]
        )
        for sign in (1, -1)
    ]
    slope = sum(float(((before[key] - params[key]) * move[key]).sum()) for key in before)
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

    # The only scalar output of a file is its loss.
    name = "y" if expected.ndim else "loss"
    np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes"), [("ij,jk", [(2, 3)]), ("ii->i", [(2, 3)]), ("ij->ik", [(2, 3)])]
)
def test_equations_that_do_not_match_the_shapes_are_refused(
    equation: str, shapes: list[tuple[int, ...]]
) -> None:
    node = helper.make_node("Einsum", ["x"], ["y"], equation=equation)
    with pytest.raises(ImportModelError, match="Einsum in y: the einsum"):
        from_onnx(make([node], {"x": shapes[0]}, {"y": (2, 2)}))


RESIZED = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
OLDER: dict[str, tuple[dict[str, Any], str, dict[str, str]]] = {
    "Slice": ({"axes": [1, 2], "starts": [1, -3], "ends": [3, 1000]}, "starts ends axes", {}),
    "Pad": ({"pads": [0, 0, 1, 2, 0, 0, 1, 0], "value": 1.5}, "pads value", {}),
    "Clip": ({"min": -0.5, "max": 0.75}, "min max", {}),
    "Upsample": ({"scales": [1.0, 1.0, 2.0, 3.0]}, "roi scales", RESIZED),
    "Upsample linear": ({"scales": [1.0, 1.0, 2.0, 2.0]}, "roi scales", RESIZED),
}


@pytest.mark.parametrize("name", OLDER)
def test_older_forms_equal_later_ones(name: str) -> None:
    attributes, inputs, further = OLDER[name]
    op, *mode = name.split()
    modes = {"mode": mode[0]} if mode else {}
    x = random(2, 4, 6, 6)
    arguments = {key: np.asarray(number) for key, number in attributes.items()}
    arguments = {
        key: x.astype(np.float32) if x.dtype.kind == "f" else x for key, x in arguments.items()
    }
    names = ["" if key not in arguments else key for key in inputs.split()]
    later_op = "Resize" if op == "Upsample" else op
    later = helper.make_node(later_op, ["x", *names], ["y"], **modes, **further)
    shapes = {"x": x.shape}, {"y": [None] * 4}
    (expected,) = ReferenceEvaluator(make([later], *shapes, arguments, 13)).run(None, {"x": x})

    older = helper.make_node(op, ["x"], ["y"], **modes, **attributes)
    found = outputs_of(from_onnx(make([older], *shapes, opset=7)), {"x": x})["y"]

    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_topk_of_opset_7_and_resize_of_opset_10() -> None:
    x = random(2, 4, 6, 6)
    node = helper.make_node("TopK", ["x"], ["y", "places"], k=2, axis=1)
    model = make([node], {"x": x.shape}, {"y": (2, 2, 6, 6)}, opset=7)
    found = outputs_of(from_onnx(model), {"x": x})["y"]
    np.testing.assert_array_equal(found, -np.sort(-x, 1)[:, :2])

    node = helper.make_node("Resize", ["x", "scales"], ["y"], mode="nearest")
    half = {"scales": np.array([1, 1, 0.5, 2], np.float32)}
    model = make([node], {"x": x.shape}, {"y": (2, 4, 3, 12)}, half, opset=10)
    found = outputs_of(from_onnx(model), {"x": x})["y"]
    np.testing.assert_array_equal(found, x[:, :, ::2].repeat(2, 3))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_and_back(mode: str) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("DepthToSpace", ["a"], ["b"], blocksize=2, mode=mode),
        helper.make_node("Tanh", ["b"], ["c"]),
        helper.make_node("SpaceToDepth", ["c"], ["y"], blocksize=2),
    ]
    check_slopes(make(nodes, {"x": (2, 3, 4, 6)}, {"y": (2, 8, 4, 6)}, {"w": random(8, 3, 3, 3)}))


def test_open_sizes_bounds_of_one_element_and_wrong_declarations() -> None:
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["a"]),
        helper.make_node("Pad", ["a", "pads", "low"], ["b"]),
        helper.make_node("Slice", ["b", "zero", "one", "one"], ["c"]),
        helper.make_node("CumSum", ["c", "axis"], ["d"], exclusive=1),
        helper.make_node("Add", ["b", "d"], ["y"]),
    ]
    numbers = {"low": np.float32([-0.5]), "high": np.float32([0.5])}
    numbers |= {
        "pads": np.array([0, 1, 0, 0]),
        "zero": np.array([0]),
        "one": np.array([1]),
        "axis": np.array(1),
    }
    model = make(nodes, {"x": (-1, 3)}, {"y": (7, 7)}, numbers, 13)

    with pytest.warns(UserWarning, match=r"the shape \[7, 7\] for 'y', but it has \[2, 4\]"):
        check(model, {"x": random(2, 3)})
    with pytest.raises(ImportModelError, match="a shape that is not fixed"):
        from_onnx(model)


PLACED = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("place", PLACED)
def test_resizing_by_scales_equals_onnx_runtime(mode: str, place: str) -> None:
    """The reference counts corners by fractions of elements; PyTorch does as ONNX Runtime."""
    x, scales = random(1, 2, 5, 6), np.float32([1, 1, 1.7, 0.7])
    how = {"mode": mode, "coordinate_transformation_mode": place}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], **how)
    model = make([node], {"x": x.shape}, {"y": (1, 2, 8, 4)}, {"s": scales})
    (found,) = outputs_of(from_onnx(model), {"x": x}).values()
    (expected,) = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(4, 3), (13, 9), (5, 11), (1, 2)])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resizing_with_antialias(mode: str, size: tuple[int, int]) -> None:
    """Results equal ONNX Runtime's and the reference's, within 1e-5: their scales are f32.

    The reference reads one element at another position than the standard says.
    """
    x, shape = random(1, 2, 9, 7), (1, 2, *size)
    for place, outside in product(PLACED, (0, 1)):
        how: dict[str, Any] = {"mode": mode, "antialias": 1, "exclude_outside": outside}
        how["coordinate_transformation_mode"] = place
        node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **how)
        model = make([node], {"x": x.shape}, {"y": shape}, {"s": np.array(shape)}, opset=18)
        (found,) = outputs_of(from_onnx(model), {"x": x}).values()

        (expected,) = InferenceSession(model.SerializeToString()).run(None, {"x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        if place != "pytorch_half_pixel":
            (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
