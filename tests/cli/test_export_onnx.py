"""`pockengine export` writes an artifact's original ONNX model with tuned weights."""

from pathlib import Path

import numpy as np
import onnx
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import pockengine
from pockengine.cli.export import export


def test_the_model_is_written_with_tuned_weights(tmp_path: Path) -> None:
    path, weight = tmp_path / "net.onnx", np.ones((6, 3), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    compiled = pockengine.compile(path, {"x": x}, loss="cross_entropy", folder=tmp_path / "made")
    with compiled.session() as session:
        session.train_step({"x": x, "target": np.arange(4) % 3}, lr=0.5)
        session.save(tmp_path / "checkpoint")
        tuned = session.params()["w"]

    places = [str(tmp_path / name) for name in ("made", "checkpoint")]
    out = tmp_path / "a new folder" / "tuned.onnx"
    result = CliRunner().invoke(export, [*places, "--out", str(out), "--model", str(path)])

    assert result.exit_code == 0, result.output
    (found,) = onnx.load(out).graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(found), tuned)
    assert not np.array_equal(tuned, weight)
