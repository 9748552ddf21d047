"""Sessions with TFLite's runtime: frozen weights, invalid indices, missing or refused parts."""

import numpy as np
import pytest

import pockengine
from pockengine import extras
from pockengine.backends.tflite import flat, runtime
from pockengine.backends.tflite.forms import movement
from pockengine.compiled import Compiled
from pockengine.compiler.ir import I32, Builder, Graph, TensorType
from pockengine.errors import (
    MissingPackage,
    RuntimeFailure,
)
from pockengine.tests.backends.session_tests import RefusalTests, SessionTests, product_in_a_layer
from pockengine.tests.compiler.small_nets import residual_net


class TestSession(SessionTests):
    backend = "tflite"


class TestRefusals(RefusalTests):
    backend = "tflite"


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return pockengine.compile(residual_net(), None, backend="tflite", scheme="head-only")


def test_what_is_not_installed_is_named(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (extras, runtime):
        monkeypatch.setattr(module, "find_spec", lambda package: None)
    with pytest.raises(MissingPackage, match=r"ai_edge_litert.*not installed.*\[litert"):
        compiled.session()
    with pytest.raises(MissingPackage, match=r"the backend tflite needs flatbuffers, tflite, not"):
        pockengine.compile(residual_net(), None, backend="tflite")


def test_a_runtime_that_is_too_old_is_named(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ai_edge_litert.__version__", "0.9.1")
    with pytest.raises(MissingPackage, match=r"ai_edge_litert 1\.0 or newer, not 0\.9\.1: pip"):
        compiled.session()


def test_an_operator_that_the_runtime_lacks_is_named_with_its_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(flat.VERSIONS, "FULLY_CONNECTED", 99)
    compiled = pockengine.compile(product_in_a_layer(), None, backend="tflite")
    with pytest.raises(RuntimeFailure, match=r"refuses .*matmul.* in encoder\.layer\.1: Didn't fi"):
        compiled.session()


def test_an_operator_that_the_runtime_cannot_prepare_is_named_with_its_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    g = Builder(Graph("net"))
    x = g.input("x", TensorType(I32, (1, 2, 1, 2, 1, 2)))  # XNNPACK pads floats of 6 dimensions
    with g.scope("encoder.pads"):
        y = g.pad(x, low=(1, 0, 0, 0, 0, 0), high=(0, 0, 0, 0, 0, 1))
    total = g.reduce_sum(g.cast(y, dtype="f32"), axes=tuple(range(6)))
    g.output("loss", g.mul(g.param("w", np.ones((), np.float32)), total))
    monkeypatch.setattr(movement, "MOST_MOVED", 9)
    compiled = pockengine.compile(g.graph, None, backend="tflite")
    wrong = r"failed to run model\.tflite, entry evaluate, at .*pad .* in encoder\.pads: .*prepare"
    with compiled.session() as session, pytest.raises(RuntimeFailure, match=wrong):
        session.evaluate({"x": np.ones((1, 2, 1, 2, 1, 2), np.int32)})
