"""The repository's files for the checks: the packages listed in build_defs/deps.bzl."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).absolute().parents[2]

# Text whose form is fixed by a tool or by another project's format, and what rules_python puts
# beside a test.
_SKIPPED = re.compile(r"third_party/pypi/|.*/_\w+(\.venv/|_stage2_bootstrap\.py$)")


@functools.cache
def files(*patterns: str) -> tuple[Path, ...]:
    """Return the files whose names match one of the patterns, sorted, relative to the root."""
    found = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.rglob(pattern)}
    return tuple(sorted(path for path in found if not _SKIPPED.match(str(path))))


def read(path: Path) -> str:
    """Return a file's text."""
    return (ROOT / path).read_text(encoding="utf-8")


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a Python file, parsed once for all checks."""
    return tuple(ast.walk(ast.parse(read(path))))
