"""deps.bzl lists each target's imports; handwritten deps are only those that no import shows."""

from collections import Counter

from pockengine.tests.repo.deps import COMMAND, FILE, LAZY, dependencies, owners, short, text
from pockengine.tests.repo.targets import targets
from pockengine.tests.repo.tree import files, read


def test_the_generated_file_is_current() -> None:
    assert read(FILE).splitlines() == text().splitlines(), f"run {COMMAND}"


def test_deps_written_by_hand_are_not_imported() -> None:
    repeated = [
        f"{label}: {short(dep)}"
        for label, target in targets().items()
        for dep in target.deps
        if target.rule in ("py_binary", "py_library") and short(dep) in dependencies(target)
    ]
    assert repeated == []


def test_deps_left_to_users_exist() -> None:
    assert [label for pair in LAZY.items() for label in pair if label not in targets()] == []


def test_each_module_has_a_target() -> None:
    run_by_path = {
        "build_defs/ci_summary.py",
        "build_defs/npm_fetch.py",
        "build_defs/pip_install.py",
        "build_defs/pytest_main.py",
        "setup.py",
        "tests/frontends/tensorflow/keras2/write.py",
    }
    modules = {str(path) for path in files("*.py")}
    assert modules - owners().keys() == run_by_path


def test_each_file_is_in_one_library_and_each_test_in_one_target() -> None:
    for rule in ("py_library", "pytest_test"):
        of_rule = [target for target in targets().values() if target.rule == rule]
        counts = Counter(source for target in of_rule for source in target.sources)
        assert [source for source, count in counts.items() if count > 1] == []
