"""Sessions of TVM libraries: frozen weights, random numbers, missing or refused parts."""

from pathlib import Path

import onnx
import pytest

import pockengine
from pockengine import extras
from pockengine.backends.onnx.bindings import model_name
from pockengine.backends.tvm.library import module_of
from pockengine.compiled import Compiled
from pockengine.errors import CompileError, DeviceError, MissingPackage
from pockengine.tests.backends.session_tests import RefusalTests, SessionTests, product_in_a_layer
from pockengine.tests.compiler.small_nets import residual_net


class TestSession(SessionTests):
    backend = "tvm"


class TestRefusals(RefusalTests):
    backend = "tvm"


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return pockengine.compile(residual_net(), None, backend="tvm", scheme="head-only")


def test_what_is_not_installed_is_named(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    with pytest.raises(MissingPackage, match=r"tvm, tvm_ffi, not installed.*\[tvm\]"):
        compiled.session()
    with pytest.raises(
        MissingPackage, match=r"the backend tvm needs onnx, tvm, tvm_ffi, not installed"
    ):
        pockengine.compile(residual_net(), None, backend="tvm")


def test_a_tvm_that_is_too_old_is_named(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvm.__version__", "0.18.0")
    with pytest.raises(MissingPackage, match=r"apache-tvm 0\.27 or newer, not 0\.18\.0: pip"):
        compiled.session()


def test_a_refused_node_is_named_with_its_layer() -> None:
    compiled = pockengine.compile(product_in_a_layer(), None, backend="tvm")
    path = compiled.artifact.folder / "code" / model_name("train")
    model = onnx.load(path, load_external_data=False)
    next(node for node in model.graph.node if node.op_type == "Gemm").op_type = "Gemmm"
    with pytest.raises(CompileError, match=r"refuses train\.onnx \(.*matmul.* in encoder\.layer"):
        module_of({"train": model})


def test_a_device_without_a_system_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"stm32f746 takes no backend 'tvm'"):
        pockengine.compile(residual_net(), None, device="stm32f746", backend="tvm")


def test_a_library_for_a_board_is_of_its_machine(tmp_path: Path) -> None:
    compiled = pockengine.compile(
        residual_net(), None, device="rpi4", backend="tvm", scheme="head-only", folder=tmp_path
    )
    header = compiled.artifact.library.read_bytes()[:20]
    assert (header[:4], header[18]) == (b"\x7fELF", 183)  # EM_AARCH64
