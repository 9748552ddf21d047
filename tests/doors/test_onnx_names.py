"""Names of an ONNX file stay names in generated C, whatever text they are."""

from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from pockengine.compiler.ir import Graph
from pockengine.frontends.onnx.model import from_onnx
from pockengine.tests.backends.c.tokens import ATTACKS, check_names


def net(name: Callable[[str], str]) -> Graph:
    def node(op: str, inputs: list[str], outputs: list[str]) -> object:
        names = [list(map(name, part)) for part in (inputs, outputs)]
        return helper.make_node(op, *names, name=name(f"node {op}"), doc_string=name("doc"))

    nodes = [
        node("MatMul", ["x", "weight"], ["product"]),
        node("Add", ["product", "bias"], ["sum"]),
        node("Sigmoid", ["sum"], ["y"]),
    ]
    shapes = {"x": (2, 3), "y": (2, 4)}
    infos = {
        key: helper.make_tensor_value_info(name(key), TensorProto.FLOAT, shape)
        for key, shape in shapes.items()
    }
    arrays = {"weight": np.ones((3, 4), np.float32), "bias": np.ones(4, np.float32)}
    tensors = [numpy_helper.from_array(data, name(key)) for key, data in arrays.items()]
    graph = helper.make_graph(nodes, name("graph"), [infos["x"]], [infos["y"]], tensors)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, producer_name=name("producer"))
    model.ir_version = 8
    return from_onnx(model, loss="mse")


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_a_name_changes_no_token(attack: str) -> None:
    check_names(net, [attack])
