"""Some models of ONNX's zoo (`//tests/zoo:onnx_zoo` has all), the common models, and names.

Names in an ONNX file cannot inject code into generated C.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import pockengine
from pockengine.compiler.ir import Graph
from pockengine.frontends.onnx.model import from_onnx
from pockengine.tests.backends.c.tokens import ATTACKS, check_names
from pockengine.tests.zoo import common
from pockengine.tests.zoo.common_measure import check
from pockengine.tests.zoo.common_onnx import resnet, transformer, transformer_model
from pockengine.tests.zoo.framework_step import compared
from pockengine.tests.zoo.onnx_zoo import ZOO
from pockengine.tests.zoo.verdict import PASSED, judge

SOME = ["attention", "branch", "gru", "logistic-regression", "lstm-tagger", "messages"]


@pytest.mark.parametrize("name", SOME)
def test_step_matches_the_framework(name: str) -> None:
    verdict = judge(ZOO[name], compared)

    assert verdict.kind == PASSED, verdict.words


@pytest.mark.parametrize("build", [resnet, transformer])
def test_common_model_matches_our_own_ops(build: Callable[[], Graph]) -> None:
    check("onnx", build.__name__, build())


def test_tuned_weights_are_exported_to_an_onnx_file(tmp_path: Path) -> None:
    words, y = common.batches("transformer")[0]
    onnx.save(transformer_model(), tmp_path / "model.onnx")
    compiled = pockengine.compile(tmp_path / "model.onnx", (words,), loss="cross_entropy")
    with compiled.session() as session:
        for _ in range(3):
            session.train_step({"x": words, "target": y}, lr=common.LR)
        onnx.save(compiled.tuned(session), tmp_path / "tuned.onnx")
        (logits,) = session.predict({"x": words}).values()

    after, before = (
        ReferenceEvaluator(str(tmp_path / name)).run(None, {"x": words})[0]
        for name in ("tuned.onnx", "model.onnx")
    )
    np.testing.assert_allclose(logits, after, rtol=1e-4, atol=1e-5)
    assert np.abs(after - before).max() > 0.1


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
def test_names_change_no_token(attack: str) -> None:
    check_names(net, [attack])
