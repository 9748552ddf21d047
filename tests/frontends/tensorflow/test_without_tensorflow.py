"""The frontend without TensorFlow: it imports, and names the missing package on use."""

import sys
from types import ModuleType

import numpy as np
import pytest

from pockengine.compiler.ir import Builder, Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow import (
    from_tensorflow,
    is_tensorflow,
    load_weights,
    to_weights,
)


@pytest.fixture(autouse=True)
def no_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)


def test_importing_names_the_package_to_install() -> None:
    with pytest.raises(ImportModelError, match=r"from_tensorflow needs .*pip install tensorflow"):
        from_tensorflow(object(), ())


@pytest.mark.parametrize("version", ["2.15.0", "3.9.2", "3.1", "odd"])
def test_keras_older_than_the_tested_one_is_refused(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    monkeypatch.setitem(sys.modules, "keras", stub := ModuleType("keras"))
    stub.__dict__["__version__"] = version

    words = rf"needs Keras 3\.10 or newer, not {version}, .*pip install 'keras>=3\.10'"
    with pytest.raises(ImportModelError, match=words):
        from_tensorflow(object(), ())


def test_exporting_weights_needs_tensorflow_only_to_assign_them() -> None:
    graph = Graph("test")
    Builder(graph).param("dense/kernel", np.ones((1, 2), np.float32), permutation=(1, 0))

    assert to_weights(graph)["dense/kernel"].shape == (2, 1)
    with pytest.raises(ImportModelError, match=r"load_weights needs .*pip install tensorflow"):
        load_weights(object(), {})


def test_weights_of_another_graph_are_reported() -> None:
    with pytest.raises(ImportModelError, match="graph test has no parameter 'x'"):
        to_weights(Graph("test"), {"x": np.ones(3, np.float32)})


def test_no_model_is_recognized_without_tensorflow() -> None:
    assert not is_tensorflow(np.zeros(3))
    assert not is_tensorflow(lambda x: x)
