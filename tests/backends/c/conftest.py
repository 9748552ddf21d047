"""Fixtures: a place for compiled objects that tests may write to, also in Bazel's sandbox."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def object_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the build cache out of the home folder where Bazel says so."""
    if "TEST_TMPDIR" in os.environ:
        os.environ["XDG_CACHE_HOME"] = os.environ["TEST_TMPDIR"]
