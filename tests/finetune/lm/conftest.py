"""Tests of language models trace each decoder once."""

from collections.abc import Iterator

import pytest

from pockengine.tests.models.shared_traces import shared_traces


@pytest.fixture(autouse=True, scope="session")
def _traces() -> Iterator[None]:
    with shared_traces():
        yield
