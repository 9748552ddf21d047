"""A model's type selects its frontend; other packages can register theirs."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest

import pockengine
from pockengine.errors import ImportModelError
from pockengine.frontends import registry
from pockengine.frontends.registry import GROUP, FrontendEntry, known_frontends, register
from pockengine.tests.frontends import polynomials
from pockengine.tests.frontends.polynomials import ENTRY, Polynomial

X = np.linspace(-1, 1, 16, dtype=np.float32)


@pytest.fixture(autouse=True)
def isolated_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Isolate each test from registered and installed frontends."""
    monkeypatch.setattr(registry, "_REGISTERED", {})
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()


def offer(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    points = EntryPoints([EntryPoint("polynomials", f"{polynomials.__name__}:{name}", GROUP)])
    monkeypatch.setattr(registry, "entry_points", points.select)


def test_a_registered_frontend_imports_its_models() -> None:
    with pytest.raises(ImportModelError, match="an object of type Polynomial is no model"):
        pockengine.compile(Polynomial((0.0, 1.0)), (X, X))
    register(ENTRY)
    compiled = pockengine.compile(Polynomial((0.0, 0.0, 0.0)), (X, X))
    x = np.tile(X, 400)
    compiled.fit((x, 1 + 2 * x * x), epochs=1, lr=0.5, progress=False)
    fitted = compiled.tuned()
    assert isinstance(fitted, Polynomial)
    np.testing.assert_allclose(fitted.coefficients, (1, 0, 2), atol=1e-3)


def test_an_installed_package_provides_a_frontend(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "ENTRY")
    assert [entry.framework for entry in known_frontends()][-2:] == ["Polynomials", "JAX"]
    origin = pockengine.compile(Polynomial((0.0, 1.0)), (X, X)).origin
    assert origin is not None
    assert origin.frontend is polynomials.FRONTEND


def test_an_invalid_entry_point_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "FRONTEND")
    with pytest.raises(ImportModelError, match=r"entry point polynomials .* is no FrontendEntry"):
        known_frontends()


def test_a_name_can_be_registered_once() -> None:
    register(ENTRY)
    register(ENTRY)
    with pytest.raises(ImportModelError, match=r"PyTorch is pockengine\.frontends\.torch"):
        register(FrontendEntry("PyTorch", "mine", ("torch",)))
