"""ONNX operators that sample at data-dependent positions, draw numbers, or are rare."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.model import from_onnx
from pockengine.tests.frontends.onnx.models import check, check_slopes, make, random

PICTURE = (2, 6, 7, 9)
REGIONS = np.asarray(
    [[0, 0, 6, 5], [1.3, 2.2, 7.7, 6.9], [-3, -4, 14, 13], [2, 2, 2.1, 2.3], [5, 1, 8.5, 20]],
    np.float32,
)
PICTURES = np.asarray([0, 1, 1, 0, 1])


def gained(
    op: str,
    shape: tuple[int, ...],
    y: tuple[int, ...],
    known: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray],
    opset: int = 20,
    **attrs: Any,
) -> ModelProto:
    """Multiply x by a weight and apply an operator to the product, constants and weights."""
    nodes = [
        *(
            helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
            for name, array in known.items()
        ),
        helper.make_node("Mul", ["x", "gain"], ["z"]),
        helper.make_node(op, ["z", *known, *weights], ["y"], **attrs),
    ]
    return make(nodes, {"x": shape}, {"y": y}, {"gain": random(*shape), **weights}, opset=opset)


def aligned(opset: int = 16, **attrs: Any) -> ModelProto:
    """A RoiAlign of regions of pictures, in cells of three by two."""
    attrs = {"sampling_ratio": 2, "spatial_scale": 0.75, **attrs}
    known = {"regions": REGIONS, "pictures": PICTURES}
    cells = {"output_height": 3, "output_width": 2}
    return gained("RoiAlign", PICTURE, (5, 6, 3, 2), known, {}, opset, **cells, **attrs)


def between(places: np.ndarray) -> np.ndarray:
    """Move positions away from integers, where the gradient jumps."""
    whole = np.floor(places)
    return whole + 0.3 + 0.4 * (places - whole)


def moved(group: int, offset_group: int, masked: bool, **attrs: Any) -> ModelProto:
    """A deformable convolution of 3 x 2 windows; offsets range from below a pixel to several."""
    weights = {
        "weight": random(6, 6 // group, 3, 2),
        "offset": between(random(2, offset_group * 12, 4, 8, scale=1.5)),
        "bias": random(6),
    }
    if masked:
        weights["mask"] = random(2, offset_group * 6, 4, 8)
    attrs = {"group": group, "offset_group": offset_group, "pads": [1, 0, 1, 0], **attrs}
    return gained("DeformConv", PICTURE, (2, 6, 4, 8), {}, weights, strides=[2, 1], **attrs)


def blocks(size: list[int], block: list[int], count: int, **attrs: Any) -> ModelProto:
    """A Col2Im that sums blocks of three channels."""
    known = {"image": np.asarray(size), "block": np.asarray(block)}
    return gained("Col2Im", (2, 3 * int(np.prod(block)), count), (2, 3, *size), known, {}, **attrs)


def running(**attrs: int) -> ModelProto:
    """A cumulative product."""
    return gained("CumProd", (3, 5), (3, 5), {"axis": np.asarray(1)}, {}, 26, **attrs)


CASES = {
    "aligned": aligned(),
    "aligned at corners": aligned(coordinate_transformation_mode="output_half_pixel"),
    "moved": moved(1, 1, True),
    "moved in groups": moved(2, 3, True),
    "moved without a mask": moved(3, 1, False, kernel_shape=[3, 2]),
    "blocks": blocks([4, 5], [2, 2], 12),
    "blocks with gaps": blocks(
        [6, 8], [3, 2], 16, pads=[1, 0, 2, 1], strides=[2, 2], dilations=[1, 2]
    ),
    "blocks of a line": blocks([9], [3], 4, strides=[2]),
    "products": running(),
    "exclusive products": running(exclusive=1),
    "products from the end": running(reverse=1),
    "exclusive products from the end": running(exclusive=1, reverse=1),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_and_their_gradients_equal_the_reference(name: str) -> None:
    check_slopes(CASES[name])


def test_opset_10_aligns_at_corners() -> None:
    x = {"x": random(*PICTURE, seed=1)}
    older, newer = aligned(opset=10), aligned(coordinate_transformation_mode="output_half_pixel")

    np.testing.assert_array_equal(run(from_onnx(older), x)["y"], run(from_onnx(newer), x)["y"])


def test_a_norm_over_each_channel() -> None:
    model = gained("GlobalLpPool", PICTURE, (2, 6, 1, 1), {}, {}, p=3)
    x = random(*PICTURE, seed=1)

    found = run(from_onnx(model), {"x": x})["y"]

    cubes = np.abs(x * random(*PICTURE)) ** 3
    np.testing.assert_allclose(found, cubes.sum((2, 3), keepdims=True) ** (1 / 3), rtol=1e-5)


def test_regions_with_size_dependent_sampling_are_refused() -> None:
    with pytest.raises(ImportModelError, match="export with sampling_ratio=2"):
        from_onnx(aligned(sampling_ratio=0))


@pytest.mark.parametrize(
    ("op", "attrs", "mean", "deviation"),
    [
        ("RandomNormal", {"shape": [64, 64], "mean": 1.0, "scale": 2.0}, 1, 2),
        ("RandomNormalLike", {"seed": 1.0}, 0, 1),
        ("RandomUniform", {"shape": [64, 64], "low": -1.0, "high": 2.0}, 0.5, 3 / 12**0.5),
        ("RandomUniformLike", {}, 0.5, 1 / 12**0.5),
        ("Bernoulli", {}, 0.25, 0.1875**0.5),
    ],
)
def test_each_seed_draws_different_numbers(
    op: str, attrs: dict[str, Any], mean: float, deviation: float
) -> None:
    reads = ["x"] if "shape" not in attrs else []
    nodes = [
        helper.make_node(op, reads, ["drawn"], **attrs),
        helper.make_node("Add", ["x", "drawn"], ["y"]),
    ]
    graph = from_onnx(make(nodes, {"x": (64, 64)}, {"y": (64, 64)}))
    x = np.full((64, 64), 0.25, np.float32)

    first, second = (
        run(graph, {"x": x, "seed": np.asarray(seed, np.int32)})["y"] - x for seed in (1, 2)
    )

    assert (first != second).any()
    assert first.mean() == pytest.approx(mean, abs=0.1)
    assert first.std() == pytest.approx(deviation, rel=0.05)


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bitwise_operators(op: str) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT32),
        helper.make_node("Cast", ["w"], ["j"], to=TensorProto.INT32),
        helper.make_node(op, ["i", "j"], ["both"]),
        helper.make_node("BitwiseNot", ["both"], ["turned"]),
        helper.make_node("Cast", ["turned"], ["y"], to=TensorProto.FLOAT),
    ]
    numbers = np.arange(-8, 8, dtype=np.float32)
    model = make(nodes, {"x": (16,)}, {"y": (16,)}, {"w": 7 * numbers[::-1].copy()}, opset=20)

    check(model, {"x": numbers * 3})


def test_eye_like() -> None:
    nodes = [
        helper.make_node("EyeLike", ["x"], ["eye"], k=1),
        helper.make_node("MatMul", ["x", "eye"], ["y"]),
    ]
    square = make(nodes, {"x": (4, 4)}, {"y": (4, 4)}, opset=20)
    check(square, {"x": random(4, 4)})


@pytest.mark.parametrize("op", ["NonMaxSuppression", "NonZero"])
def test_results_whose_size_depends_on_data_are_refused(op: str) -> None:
    reads = ["x"] if op == "NonZero" else ["x", "x"]
    shapes = {"x": (1, 4, 4)}
    model = make([helper.make_node(op, reads, ["y"])], shapes, {"y": (None, None)})

    with pytest.raises(ImportModelError, match=f"{op} in y: how much it finds depends on data"):
        from_onnx(model)
