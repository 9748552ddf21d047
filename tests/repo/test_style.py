"""Limits that no formatter checks: sizes, dependencies between parts, leftovers."""

import ast
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pockengine.tests.repo.deps import FILE as GENERATED
from pockengine.tests.repo.tree import files, nodes, read

FILE_LINES = 400
FUNCTION_LINES = 40
PARAMETERS = 7
POSITIONAL = 4

OUTSIDE = {"build_defs", "docs", "examples", "setup.py", "studies", "tests"}
"""Folders outside the package."""

FRAMEWORKS = {"jax", "keras", "onnx", "tensorflow", "tflite", "torch"}
WITHOUT_FRAMEWORK = ("compiler", "backends", "devices")
OF_BACKENDS = {
    "backends/onnx": {"onnx"},
    "backends/tflite": {"tflite"},
    "backends/tvm": {"onnx", "tvm"},
}
"""Frameworks that a backend is based on."""

# Code that may depend on one backend, and why; the rest uses backends/protocol.py and registry.py.
KNOWS_C = {
    "cli/kernels.py": "lists the candidate plans of each kernel",
    "cli/profile_step.py": "times single kernels, and reads this machine's peaks",
    "cli/tune.py": "measures C kernels on a board",
    "farm/cli/bench_suite.py": "measures this machine's peaks with a C program",
}

LEFT_BEHIND = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE_PATH = re.compile(r"""["'\s=(](/work/|/opt/|/home/\w|/Users/\w)""")
THIS_FILE = Path("tests/repo/test_style.py")


@cache
def syntax(path: Path) -> tuple[list[ast.AST], list[ast.AST], list[ast.AST]]:
    """Return a file's functions, imports, calls and classes."""
    found = nodes(path)
    functions = [x for x in found if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef)]
    calls = [x for x in found if isinstance(x, ast.Call | ast.ClassDef)]
    return [*functions], [x for x in found if isinstance(x, ast.Import | ast.ImportFrom)], [*calls]


def python_functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in syntax(path)[0]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{path}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def c_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield functions in clang-format's layout: from an unindented line to a lone `}`.

    Preprocessor lines do not count: a template contains alternatives.
    """
    start = directives = 0
    for number, line in enumerate(read(path).splitlines(), 1):
        if line.startswith("#"):
            directives += 1
        elif line == "}":
            yield f"{path}:{start}", number - start + 1 - directives
        elif line[:1].isidentifier():
            start, directives = number, 0


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of parameters that a caller passes."""
    signature = function.args
    names = [each.arg for each in (*signature.posonlyargs, *signature.args, *signature.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def by_position(path: Path) -> Iterator[tuple[str, float]]:
    """Yield a file's functions and classes, and the number of positional arguments of each."""
    for node in syntax(path)[0]:
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        count = len(node.args.posonlyargs) + len(node.args.args)
        yield node.name, math.inf if node.args.vararg else count
    for node in syntax(path)[2]:
        if isinstance(node, ast.ClassDef):
            yield node.name, PARAMETERS + sum(isinstance(each, ast.AnnAssign) for each in node.body)


def arguments(call: ast.Call) -> int:
    """Return the number of positional arguments of a call; a starred argument counts as one."""
    starred = [each.value for each in call.args if isinstance(each, ast.Starred)]
    return len(call.args) + sum(len(x.elts) - 1 for x in starred if isinstance(x, ast.Tuple))


def called(call: ast.Call) -> str:
    """Return the last name of the called function; "" if it has none."""
    return ast.unparse(call.func).rpartition(".")[2]


def foreign(imported: str, name: str) -> bool:
    """Return whether a dotted name was imported from another project."""
    first = name.partition(".")[0]
    return imported.rpartition(".")[2] == first and not imported.startswith("pockengine.")


def framework_replacements() -> set[str]:
    """Return the functions in the frontends' tables that are keyed by a framework's functions."""
    tables = [
        each
        for path in files("*.py")
        if path.parts[0] == "frontends" and f"import {path.parts[1]}" in read(path)
        for each in nodes(path)
        if isinstance(each, ast.Dict)
    ]
    return {
        ast.unparse(value).rpartition(".")[2]
        for table in tables
        for key, value in zip(table.keys, table.values, strict=True)
        if isinstance(key, ast.Attribute)
        and ast.unparse(key).partition(".")[0] in FRAMEWORKS
        and isinstance(value, ast.Name | ast.Attribute)
    }


def imports(path: Path) -> Iterator[str]:
    for node in syntax(path)[1]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import; imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_checks_see_every_module_that_is_imported() -> None:
    """Under Bazel only the packages in build_defs/deps.bzl are present: others would go unread."""
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


def test_files_are_short() -> None:
    sources = files("*.py", "*.c", "*.h", "*.bzl", "*.sh", "BUILD", "MODULE.bazel", "WORKSPACE")
    long = {str(path): read(path).count("\n") for path in sources if path != GENERATED}
    assert not {path: lines for path, lines in long.items() if lines > FILE_LINES}


def test_functions_fit_on_one_screen() -> None:
    sizes = {where: size for path in files("*.py") for where, size in python_functions(path)}
    sizes |= {where: size for path in files("*.c", "*.h") for where, size in c_functions(path)}
    assert not {where: size for where, size in sizes.items() if size > FUNCTION_LINES}


def test_functions_take_few_parameters() -> None:
    """Exempt: public functions, and functions registered by a decorator, which are called by name.

    Replacements of a framework's function have that function's parameters.
    """
    public, replacements = set(imports(Path("__init__.py"))), framework_replacements()
    found = {
        f"{path}:{function.lineno} {function.name}": count
        for path in files("*.py")
        for function in syntax(path)[0]
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and f"pockengine.{'.'.join(path.with_suffix('').parts)}.{function.name}" not in public
        and not any(isinstance(each, ast.Call) for each in function.decorator_list)
        and function.name not in replacements
        and (count := parameters(function)) > PARAMETERS
    }
    assert not found


def test_calls_pass_few_positional_arguments() -> None:
    """Exempt: functions with any number of arguments, and those of other projects."""
    takes: dict[str, float] = {}
    for path in files("*.py"):
        if path.parts[0] not in OUTSIDE:
            for name, count in by_position(path):
                takes[name] = max(takes.get(name, 0), count)
    found = {
        f"{path}:{call.lineno} {called(call)}": count
        for path in files("*.py")
        if path.parts[0] not in OUTSIDE
        for call in syntax(path)[2]
        if isinstance(call, ast.Call)
        if POSITIONAL < (count := arguments(call)) <= takes.get(called(call), 0) < math.inf
        if not any(foreign(name, ast.unparse(call.func)) for name in imports(path))
    }
    assert not found


def test_no_frontend_imports_another() -> None:
    forbidden = [
        f"{path} imports {name}"
        for path in files("*.py")
        if path.parts[0] == "frontends" and path.parts[1] in FRAMEWORKS
        for name in imports(path)
        if (other := name.split("."))[:2] == ["pockengine", "frontends"]
        if other[2] in FRAMEWORKS - {path.parts[1]}
    ]
    assert not forbidden


def test_a_backend_is_reached_through_the_protocol() -> None:
    knowing = {
        str(path)
        for path in files("*.py")
        if path.parts[0] != "tests" and path.parts[:2] != ("backends", "c")
        for name in imports(path)
        if f"{name}.".startswith("pockengine.backends.c.")
    }
    assert knowing == set(KNOWS_C)


def test_compiler_and_backends_need_no_framework() -> None:
    forbidden = [
        f"{path} imports {name}"
        for path in files("*.py")
        if path.parts[0] in WITHOUT_FRAMEWORK
        for name in imports(path)
        if name.split(".")[0] in FRAMEWORKS - OF_BACKENDS.get("/".join(path.parts[:2]), set())
    ]
    assert not forbidden


def test_no_leftovers() -> None:
    sources = files(
        "*.py",
        "*.c",
        "*.h",
        "*.bzl",
        "*.sh",
        "*.toml",
        "*.md",
        "BUILD",
        "MODULE.bazel",
        "WORKSPACE",
    )
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in sources
        if path != THIS_FILE
        for number, line in enumerate(read(path).splitlines(), 1)
        if LEFT_BEHIND.search(line) or MACHINE_PATH.search(line)
    ]
    assert not found
