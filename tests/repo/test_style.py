"""The limits that no formatter knows: sizes, who may import whom, what must not be left behind."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pockengine.tests.repo.tree import files, read

FILE_LINES = 400
FUNCTION_LINES = 40

# Folder -> the parts of pockengine that it may import; a folder that is not named may import all.
MAY_IMPORT = {
    "compiler": {"compiler", "devices", "errors", "files"},
    "backends": {"backends", "compiler", "devices", "errors", "files"},
    "devices": {"devices", "errors", "files"},
    "frontends": {"frontends", "compiler", "errors", "files"},
    "models": {"models", "errors"},
}
FRAMEWORKS = {"jax", "keras", "onnx", "tensorflow", "torch"}
WITHOUT_FRAMEWORK = ("compiler", "backends", "devices")

LEFT_BEHIND = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE_PATH = re.compile(r"""["'\s=(](/work/|/opt/|/home/\w|/Users/\w)""")
THIS_FILE = Path("tests/repo/test_style.py")


def python_functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(read(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{path}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def c_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield functions as clang-format leaves them: from an unindented line to a lone `}`.

    Lines of the preprocessor do not count: a template holds alternatives.
    """
    start = directives = 0
    for number, line in enumerate(read(path).splitlines(), 1):
        if line.startswith("#"):
            directives += 1
        elif line == "}":
            yield f"{path}:{start}", number - start + 1 - directives
        elif line[:1].isalpha():
            start, directives = number, 0


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(read(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import; imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_checks_see_every_module_that_is_imported() -> None:
    """A package that tests/repo/BUILD forgets would pass every check unread."""
    seen = {str(path.with_suffix("")) for path in files("*.py")}
    missing = {
        f"{path}: {name}"
        for path in files("*.py")
        for name in imports(path)
        if name.startswith("pockengine.")
        and not any(part in seen for part in _as_paths(name.split(".")[1:]))
    }
    assert not missing


def _as_paths(parts: list[str]) -> list[str]:
    whole, parent = "/".join(parts), "/".join(parts[:-1])
    return [whole, f"{whole}/__init__", parent, f"{parent}/__init__".lstrip("/")]


def test_files_fit_in_one_reading() -> None:
    sources = files("*.py", "*.c", "*.h", "*.bzl", "*.sh", "BUILD", "WORKSPACE")
    long = {str(path): read(path).count("\n") for path in sources}
    assert not {path: lines for path, lines in long.items() if lines > FILE_LINES}


def test_functions_fit_on_one_screen() -> None:
    sizes = {where: size for path in files("*.py") for where, size in python_functions(path)}
    sizes |= {where: size for path in files("*.c", "*.h") for where, size in c_functions(path)}
    assert not {where: size for where, size in sizes.items() if size > FUNCTION_LINES}


def test_stages_import_only_what_comes_before_them() -> None:
    forbidden = [
        f"{path} imports {name}"
        for folder, allowed in MAY_IMPORT.items()
        for path in files("*.py")
        if path.parts[0] == folder
        for name in imports(path)
        if name.startswith("pockengine.") and name.split(".")[1] not in {*allowed, "__version__"}
    ]
    assert not forbidden


def test_compiler_and_backends_need_no_framework() -> None:
    forbidden = [
        f"{path} imports {name}"
        for path in files("*.py")
        if path.parts[0] in WITHOUT_FRAMEWORK
        for name in imports(path)
        if name.split(".")[0] in FRAMEWORKS
    ]
    assert not forbidden


def test_nothing_is_left_behind() -> None:
    sources = files("*.py", "*.c", "*.h", "*.bzl", "*.sh", "*.toml", "*.md", "BUILD", "WORKSPACE")
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in sources
        if path != THIS_FILE
        for number, line in enumerate(read(path).splitlines(), 1)
        if LEFT_BEHIND.search(line) or MACHINE_PATH.search(line)
    ]
    assert not found
