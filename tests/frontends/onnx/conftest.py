"""A fixture: kernels of these tests are compiled without optimization."""

from collections.abc import Iterator

import pytest

from pockengine.tests.frontends.unoptimized import unoptimized_kernels


@pytest.fixture(scope="session", autouse=True)
def unoptimized() -> Iterator[None]:
    """Test what a frontend imports, not how the compiler optimizes kernels."""
    with unoptimized_kernels():
        yield
