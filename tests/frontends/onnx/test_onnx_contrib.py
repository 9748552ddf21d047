"""Operators of ONNX Runtime's own domain: results equal ONNX Runtime's, and they train."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.model import from_onnx
from pockengine.frontends.onnx.ops.contrib import RUNTIME_DOMAIN
from pockengine.tests.frontends.onnx.models import random

X = random(4, 32)
WEIGHTS = {
    "scale": random(32, seed=1),
    "shift": random(32, seed=2),
    "bias": random(32, seed=3),
    "square": random(32, 32, seed=4),
    "skip": random(4, 32, seed=5),
    "packed": np.random.default_rng(0).integers(0, 256, (32, 2, 8)).astype(np.uint8),
    "scales": random(64, seed=6),
    "zeros": np.random.default_rng(1).integers(0, 256, 32).astype(np.uint8),
}
BITS = {"K": 32, "N": 32, "bits": 4, "block_size": 16}
CASES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "BiasGelu": (["bias"], {}),
    "FastGelu": (["bias"], {}),
    "FusedMatMul": (["square"], {"alpha": 0.5, "transB": 1}),
    "Gelu": ([], {}),
    "MatMulNBits": (["packed", "scales", "zeros"], BITS),
    "QuickGelu": ([], {"alpha": 1.3}),
    "SimplifiedLayerNormalization": (["scale"], {"epsilon": 1e-3, "axis": -1}),
    "SkipLayerNormalization": (["skip", "scale", "shift", "bias"], {"epsilon": 1e-3}),
    "SkipSimplifiedLayerNormalization": (["skip", "scale", "bias"], {"epsilon": 1e-3}),
}


def model_of(op: str, names: list[str], attributes: dict[str, Any]) -> ModelProto:
    """Return a model of one operator; its other inputs are initializers."""
    domain = "" if op.startswith("Simplified") else RUNTIME_DOMAIN
    node = helper.make_node(op, ["x", *names], ["y"], domain=domain, **attributes)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (4, 32)) for n in "xy")
    weights = [numpy_helper.from_array(WEIGHTS[name], name) for name in names]
    graph = helper.make_graph([node], "contrib", [x], [y], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(RUNTIME_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("op", CASES)
def test_operators_equal_onnx_runtime(op: str) -> None:
    inputs, attributes = CASES[op]
    model = model_of(op, inputs, attributes)
    session = onnxruntime.InferenceSession(model.SerializeToString())

    graph = from_onnx(model)

    (expected,) = session.run(None, {"x": X})
    np.testing.assert_allclose(run(graph, {"x": X})["y"], expected, rtol=2e-4, atol=2e-4)
    floats = {name for name in inputs if WEIGHTS[name].dtype == np.float32}
    trained = {name for name, param in graph.params.items() if param.trainable}
    assert trained == floats - {"scales"}


def test_weights_of_other_widths_are_refused() -> None:
    with pytest.raises(ImportModelError, match="weights of 8 bits; use 4"):
        from_onnx(model_of("MatMulNBits", ["packed", "scales"], {**BITS, "bits": 8}))
