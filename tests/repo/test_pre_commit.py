"""The hooks of .pre-commit-config.yaml run the same locked versions as the tests."""

import re
from pathlib import Path

from pockengine.tests.repo.tree import read

HOOKS = read(Path(".pre-commit-config.yaml"))
PIN = re.compile(r"^([\w.-]+)==([\w.]+)", re.MULTILINE)
CHECKERS = {"clang-format", "mypy", "ruff", "types-paramiko"}


def locked() -> dict[str, str]:
    texts = (read(Path(f"third_party/pypi/{name}.lock")) for name in ("pypi", "lint"))
    return {name: version for text in texts for name, version in PIN.findall(text)}


def test_hooks_run_the_locked_versions() -> None:
    pins = set(re.findall(r"([\w.-]+)==([\w.]+)", HOOKS))
    assert {name for name, _ in pins} >= CHECKERS
    assert pins <= set(locked().items())
