"""Sessions with ONNX Runtime: frozen weights, invalid indices, missing or refused parts."""

import onnx
import pytest

import pockengine
from pockengine import extras
from pockengine.backends.onnx.bindings import model_name
from pockengine.backends.onnx.runtime import OnnxModel
from pockengine.compiled import Compiled
from pockengine.errors import (
    MissingPackage,
    RuntimeFailure,
)
from pockengine.tests.backends.session_tests import RefusalTests, SessionTests, product_in_a_layer
from pockengine.tests.compiler.small_nets import residual_net


class TestSession(SessionTests):
    backend = "onnx"


class TestRefusals(RefusalTests):
    backend = "onnx"


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return pockengine.compile(residual_net(), None, backend="onnx", scheme="head-only")


def test_what_is_not_installed_is_named(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    with pytest.raises(MissingPackage, match=r"onnxruntime, not installed.*\[onnxrun"):
        compiled.session()
    with pytest.raises(MissingPackage, match=r"the backend onnx needs onnx, not installed"):
        pockengine.compile(residual_net(), None, backend="onnx")


def test_a_runtime_that_is_too_old_is_named(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxruntime.__version__", "1.23.2")
    with pytest.raises(MissingPackage, match=r"onnxruntime 1\.24 or newer, not 1\.23\.2: pip"):
        compiled.session()


def test_a_refused_node_is_named_with_its_layer() -> None:
    """The runtime's message contains the ONNX node's name: our node with the user's layer."""
    compiled = pockengine.compile(product_in_a_layer(), None, backend="onnx")
    path = compiled.artifact.folder / "code" / model_name("train")
    model = onnx.load(path, load_external_data=False)
    next(node for node in model.graph.node if node.op_type == "Gemm").op_type = "Gemmm"
    with pytest.raises(RuntimeFailure, match=r"refuses train\.onnx: .*matmul.* in encoder\.layer"):
        OnnxModel("train", model.SerializeToString(), {}, 1)
