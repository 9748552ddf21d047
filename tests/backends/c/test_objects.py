"""Tests share only objects of equal code: other code, headers, flags or data are compiled."""

import subprocess
from pathlib import Path

import pytest

from pockengine.errors import BuildError
from pockengine.tests.backends.c.objects import build_executable, object_of

GCC = ("gcc", "-std=gnu11", "-Wall", "-Werror")
MAIN = '#include "pe_a.h"\n#include "own.h"\nint main(void) { return A + OWN + MORE; }\n'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "pe_a.h").write_text("#define A 1\n")
    (tmp_path / "own.h").write_text("#define OWN 2\n")
    (tmp_path / "main.c").write_text(MAIN)
    return tmp_path / "main.c"


def returned(source: Path, more: int = 4) -> int:
    program = source.with_name("program")
    compiler = (*GCC, f"-DMORE={more}")
    build_executable([source], compiler, source.parent / "runtime", program)
    return subprocess.run([str(program)], check=False).returncode


def test_what_differs_is_compiled(source: Path) -> None:
    assert (returned(source), returned(source)) == (7, 7)
    (source.parent / "runtime" / "pe_a.h").write_text("#define A 10\n")
    assert returned(source) == 16
    source.with_name("own.h").write_text("#define OWN 20\n")
    assert returned(source) == 34
    assert returned(source, 5) == 35
    source.write_text(MAIN.replace("A +", "A + 100 +"))
    assert returned(source, 5) == 135


def test_equal_code_is_compiled_once(source: Path) -> None:
    compiler, runtime = (*GCC, "-DMORE=4"), source.parent / "runtime"
    made = object_of(source, compiler, runtime)
    assert object_of(source, compiler, runtime) == made
    assert object_of(source, (*compiler, "-O1"), runtime) != made


def test_what_does_not_compile_fails_each_time(source: Path) -> None:
    source.write_text("int main(void) { int unused; return 0; }\n")
    for _ in range(2):
        with pytest.raises(BuildError, match="unused"):
            returned(source)
