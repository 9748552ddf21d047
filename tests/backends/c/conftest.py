"""Fixtures: a writable folder for compiled objects, also in Bazel's sandbox."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def object_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the build cache out of the home folder; tests share the folder that `bazelw` sets."""
    if "TEST_TMPDIR" in os.environ:
        os.environ.setdefault("XDG_CACHE_HOME", os.environ["TEST_TMPDIR"])
