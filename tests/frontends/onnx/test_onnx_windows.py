"""ONNX's 1-D, 2-D and 3-D window operators, and signal operators.

tests/conformance compares most values with ONNX's own test cases. These tests add shapes that
those lack, and gradients.
"""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.model import from_onnx
from pockengine.tests.frontends.onnx.models import check, check_slopes, make, random

VOLUME, PICTURE, LINE = (2, 4, 5, 6, 6), (2, 4, 6, 6), (2, 4, 9)


def gained(
    op: str, shape: tuple[int, ...], y: tuple[int, ...], *more: np.ndarray, **attrs: Any
) -> ModelProto:
    """Multiply x by a weight and apply an operator with more weights."""
    weights = {"gain": random(*shape), **{f"w{i}": array for i, array in enumerate(more)}}
    nodes = [
        helper.make_node("Mul", ["x", "gain"], ["z"]),
        helper.make_node(op, ["z", *list(weights)[1:]], ["y"], **attrs),
    ]
    return make(nodes, {"x": shape}, {"y": y}, weights, opset=20)


KERNEL = random(6, 4, 2, 3, 3)

# Positions between elements, where the gradient does not jump.
GRID = (2 * np.random.default_rng(0).integers(0, 4, (2, 3, 3, 3, 3)) + 1.8) / (6, 6, 5) - 1

CASES = {
    "convolution of volumes": gained(
        "Conv", VOLUME, (2, 6, 4, 3, 3), KERNEL, random(6), strides=[1, 2, 2], pads=[0, 1, 1] * 2
    ),
    "convolution in groups": gained(
        "Conv", VOLUME, (2, 6, 5, 6, 6), KERNEL[:, :2], group=2, auto_pad="SAME_LOWER"
    ),
    "transposed convolution of volumes": gained(
        "ConvTranspose", VOLUME, (2, 3, 6, 14, 14), KERNEL[:4, :3, :, :, :],
        strides=[1, 2, 2], output_padding=[0, 1, 1],
    ),
    "transposed convolution of lines": gained(
        "ConvTranspose", LINE, (2, 3, 18), KERNEL[:4, :3, 0, 0], random(3),
        strides=[2], pads=[1, 0],
    ),
    "maxima of volumes": gained(
        "MaxPool", VOLUME, (2, 4, 3, 3, 3), kernel_shape=[2, 2, 2], strides=[2, 2, 2], ceil_mode=1
    ),
    "means of volumes": gained(
        "AveragePool", VOLUME, (2, 4, 3, 3, 3), kernel_shape=[3, 3, 3], strides=[2, 2, 2],
        pads=[1] * 6,
    ),
    "norms": gained("LpPool", PICTURE, (2, 4, 3, 3), kernel_shape=[2, 2], strides=[2, 2], p=3),
    "norms of lines": gained("LpPool", LINE, (2, 4, 8), kernel_shape=[2]),
    "response norm": gained("LRN", (4, 4, 6, 6), (4, 4, 6, 6), size=3, alpha=0.1, bias=2.0),
    "determinant": gained("Det", (2, 3, 3), (2,)),
    "sampled pictures": gained(
        "GridSample", PICTURE, (2, 4, 3, 3), random(2, 3, 3, 2), mode="cubic",
        padding_mode="reflection",
    ),
    "sampled volumes": gained(
        "GridSample", VOLUME, (2, 4, 3, 3, 3), GRID.astype(np.float32), padding_mode="border"
    ),
    "transform": gained("DFT", (2, 8, 1), (2, 5, 2), np.asarray(8), np.asarray(1), onesided=1),
    "frames": gained(
        "STFT", (2, 20, 1), (2, 4, 5, 2), np.asarray(4), np.hanning(8).astype(np.float32),
        np.asarray(8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_windows_and_their_gradients_equal_the_reference(name: str) -> None:
    check_slopes(CASES[name])


@pytest.mark.parametrize("larger", [False, True])
def test_maxima_are_unpooled_to_their_positions(larger: bool) -> None:
    sizes = (2, 4, 7, 8) if larger else PICTURE
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "i"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node(
            "MaxUnpool", ["p", "i", "sizes"], ["y"], kernel_shape=[2, 2], strides=[2, 2]
        ),
    ]
    model = make(nodes, {"x": PICTURE}, {"y": sizes}, {"sizes": np.asarray(sizes)}, opset=20)
    check(model, {"x": random(*PICTURE, seed=1)})


def test_column_major_indices_are_refused() -> None:
    node = helper.make_node("MaxPool", ["x"], ["p", "y"], kernel_shape=[2, 2], storage_order=1)
    outputs = {"p": (2, 4, 5, 5)}
    model = make([node], {"x": PICTURE}, outputs, {}, opset=20)
    with pytest.raises(ImportModelError, match="use storage_order=0"):
        from_onnx(model)
