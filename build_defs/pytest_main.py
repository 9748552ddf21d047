"""Run pytest under Bazel's test interface: filter, no sharding, JUnit report, no cache.

Cases marked `nightly` run if the environment has NIGHTLY.
"""

import gc
import importlib.util
import os
import random
import resource
import sys
import zlib

import pytest


def arguments(environment: dict[str, str]) -> list[str]:
    """Return pytest's arguments for Bazel's test environment."""
    chosen = ["-p", "no:cacheprovider", "-rs", "--import-mode=importlib", "--rootdir=."]
    if "XML_OUTPUT_FILE" in environment:
        chosen.append("--junitxml=" + environment["XML_OUTPUT_FILE"])
    if "TESTBRIDGE_TEST_ONLY" in environment:
        chosen += ["-k", environment["TESTBRIDGE_TEST_ONLY"]]
    if "NIGHTLY" not in environment:
        chosen += ["-m", "not nightly"]
    return chosen


def settle_hypothesis() -> None:
    """Draw the same examples in every run, so that a cached result equals a new one."""
    if importlib.util.find_spec("hypothesis") is None:
        return
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "bazel",
        derandomize=True,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],  # tests must not fail on a busy machine
    )
    settings.load_profile("bazel")


class SettledNumbers:
    """A plugin that seeds every global source of random numbers by the name of the test.

    PyTorch, TensorFlow, NumPy and Python seed their generators differently in every process.
    Seeding them by test name gives a test the same numbers in every run, alone or among others, so
    its result does not depend on chance.
    """

    @staticmethod
    def pytest_configure(config: pytest.Config) -> None:
        """Declare the mark of long cases: no settings of the project are read here."""
        config.addinivalue_line("markers", "nightly: a long case, for --config=nightly")

    @staticmethod
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(item: pytest.Item) -> None:
        """Seed the libraries that are already imported, including those of the test's file."""
        seed = zlib.crc32(item.name.encode("utf-8", "replace"))
        random.seed(seed)
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(seed)
        if torch := sys.modules.get("torch"):
            torch.manual_seed(seed)
        if tensorflow := sys.modules.get("tensorflow"):
            tensorflow.random.set_seed(seed)


class FrozenImports:
    """A plugin that hides what test files imported from the garbage collector.

    A full collection of TensorFlow's objects takes 0.25 s, and each `keras.utils.clear_session`
    collects twice.
    """

    @staticmethod
    def pytest_collection_finish() -> None:
        """Freeze all objects once every file is imported."""
        gc.freeze()


def cpu_seconds() -> float:
    """Return the processor time of this process and of its waited-for children."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> int:
    """Run the files and arguments of the command line; return Bazel's exit status."""
    # Plugins of installed wheels would change how tests run.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # PyTorch's threads spin while they wait: small nets take three times the processor time.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # The working directory is read-only.
    temporary = os.environ.get("TEST_TMPDIR", "/tmp")
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{temporary}/hypothesis"
    settle_hypothesis()
    status = pytest.main(
        [*arguments(dict(os.environ)), *sys.argv[1:]], [SettledNumbers, FrozenImports]
    )
    print(f"processor time: {cpu_seconds():.1f} s")
    # A filter that matches nothing in this target is not a failure.
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and "TESTBRIDGE_TEST_ONLY" in os.environ:
        return 0
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
