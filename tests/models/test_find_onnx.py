"""Values of MODEL with ONNX: a file, which describes its own inputs."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pockengine.errors import ImportModelError
from pockengine.models.find import find_model


@pytest.fixture(name="path")
def dynamic_product(tmp_path: Path) -> str:
    weight = numpy_helper.from_array(np.ones((6, 2), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "more", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "more", 2])],
        [weight],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset), tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


def test_dynamic_sizes_need_a_shape_option(path: str) -> None:
    found = find_model(path, shapes={"x": (4, 3, 6)})

    assert found.graph().input("x").shape == (4, 3, 6)
    assert found.loss == "cross_entropy"


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, "say them all, as --shape x=2x32x6"),
        ({"x": (4, 3, 5)}, r"--shape x does not fit x=\?x\?x6"),
        ({"x": (4, 6)}, "--shape x does not fit"),
        ({"z": (1,)}, r"has no input z; it has x=\?x\?x6"),
    ],
)
def test_errors_name_invalid_sizes(
    path: str, shapes: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ImportModelError, match=message):
        find_model(path, 2, shapes)


def test_error_names_a_missing_file() -> None:
    with pytest.raises(ImportModelError, match=r"there is no ONNX file nosuch\.onnx"):
        find_model("nosuch.onnx")
