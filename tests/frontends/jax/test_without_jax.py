"""The package without JAX: it imports, and names the missing package on use."""

import sys

import pytest

from pockengine.compiler.ir import Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.jax import from_jax, is_jax, to_pytree
from pockengine.frontends.registry import find_source


@pytest.fixture(autouse=True)
def no_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)


def test_importing_a_function_names_the_package_to_install() -> None:
    with pytest.raises(ImportModelError, match=r"from_jax needs JAX.*pip install jax"):
        from_jax(abs, ())


def test_exporting_weights_names_the_package_to_install() -> None:
    with pytest.raises(ImportModelError, match=r"to_pytree needs JAX.*pip install jax"):
        to_pytree(Graph("test"), {}, {})


def test_a_plain_function_is_refused() -> None:
    assert not is_jax(abs)
    with pytest.raises(ImportModelError, match=r"a plain function is taken for JAX's once jax is"):
        find_source(abs, ())


def test_paths_without_a_model_are_reported() -> None:
    with pytest.raises(ImportModelError, match=r"model\.onx is no file of a model: \.onnx, \.h5"):
        find_source("model.onx", ())


def test_recognizing_a_model_imports_no_framework() -> None:
    before = set(sys.modules)
    with pytest.raises(ImportModelError, match="an object of type object is no model"):
        find_source(object(), ())
    new = {name.split(".")[0] for name in set(sys.modules) - before}
    assert not new & {"jax", "keras", "onnx", "tensorflow", "torch"}
