"""Run pytest the way Bazel wants a test to behave: filter, shard-free, JUnit report, no cache."""

import os
import sys

import pytest


def arguments(environment: dict[str, str]) -> list[str]:
    """Return pytest's arguments for Bazel's test environment."""
    chosen = ["-p", "no:cacheprovider", "-rs", "--import-mode=importlib", "--rootdir=."]
    if "XML_OUTPUT_FILE" in environment:
        chosen.append("--junitxml=" + environment["XML_OUTPUT_FILE"])
    if "TESTBRIDGE_TEST_ONLY" in environment:
        chosen += ["-k", environment["TESTBRIDGE_TEST_ONLY"]]
    return chosen


if __name__ == "__main__":
    # Plugins that a wheel brings along (hypothesis' own aside) would change how tests run.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # The working directory is read-only.
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = (
        os.environ.get("TEST_TMPDIR", "/tmp") + "/hypothesis"
    )
    status = pytest.main([*arguments(dict(os.environ)), *sys.argv[1:]])
    # A filter that matches nothing in this target is no failure of it.
    nothing_selected = (
        status == pytest.ExitCode.NO_TESTS_COLLECTED and "TESTBRIDGE_TEST_ONLY" in os.environ
    )
    sys.exit(0 if nothing_selected else int(status))
