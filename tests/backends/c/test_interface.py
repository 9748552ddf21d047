"""Names visible to C and C++ programs, for any model name."""

import hashlib
import re
import subprocess

import numpy as np
import pytest

from pockengine import __version__
from pockengine.backends.native.interface import (
    header_name,
    header_text,
    identifier,
    program_symbol,
)
from pockengine.backends.native.library import MESSAGE_BYTES
from pockengine.backends.native.package import HEADERS, HOSTED_HEADERS
from pockengine.backends.native.runtime_files import RUNTIME, runtime_file
from pockengine.backends.specification import ABI
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.devices import load_device
from pockengine.tests.backends.c.programs import compile_for

HOSTILE = ["", "pe", "pe_host", "3d net", 'a"b', "größe", "int", "x" * 500, "a/../b", "*/"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_identifiers_and_no_file_of_the_runtime(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_]{1,60}", identifier(name))
    assert re.fullmatch(r"pe_program_\w+", program_symbol(name))
    assert not list(RUNTIME.rglob(header_name(name)))


def test_places_of_inputs_have_different_names() -> None:
    graph = Graph("pe host")
    g = Builder(graph)
    total = g.param("weight", _zeros())
    for name in ("a_b_2", "a.b", "a_b", "A_B", "count"):
        total = g.add(total, g.input(name, TensorType(F32, (4,))))
    g.output("loss", g.reduce_mean(g.square(total), axes=(0,), keepdims=False))
    program, _ = compile_for(graph, load_device("rpi4"))
    text = header_text(program)
    names = re.findall(r"(PE_PE_HOST_\w+) = \d+", text)
    assert len(names) == len(set(names))
    assert {"PE_PE_HOST_TRAIN_INPUT_A_B", "PE_PE_HOST_TRAIN_INPUT_A_B_2_2"} <= set(names)
    assert "PE_PE_HOST_TRAIN_INPUT_COUNT" in names
    assert f"#define PE_PE_HOST_ARENA_BYTES ((size_t){program.arena_bytes})" in text


def test_the_header_has_the_versions_of_the_package() -> None:
    text = runtime_file("pe.h").read_text()
    assert f'#define PE_VERSION "{__version__}"' in text
    assert f"#define PE_ABI {ABI}\n" in text
    assert f"#define PE_MESSAGE_BYTES {MESSAGE_BYTES}\n" in text


LAYOUT = (15, "8bfb8bca20c153ed")
"""PE_ABI, and the digest of the headers' declarations at that version."""


def test_other_declarations_have_another_abi() -> None:
    texts = [runtime_file(name).read_text() for name in (*HEADERS, *HOSTED_HEADERS)]
    declared = re.sub(r"/\*.*?\*/|#define PE_VERSION[^\n]*", " ", "\n".join(texts), flags=re.S)
    digest = hashlib.sha256(" ".join(declared.split()).encode()).hexdigest()[:16]
    assert (ABI, digest) == LAYOUT, (
        "callers compile these headers in: after a change of what they declare raise PE_ABI of "
        "pe.h and ABI of backends/specification.py, and write both numbers into LAYOUT"
    )


@pytest.mark.parametrize(
    ("macros", "refusal"),
    [
        (("-U__GNUC__", "-U__clang__", "-D_MSC_VER=1940"), "MSVC's cl has none"),
        (("-U__BYTE_ORDER__", "-D__BYTE_ORDER__=4321"), "little-endian"),
    ],
)
def test_compilers_that_lack_what_the_headers_need_are_refused(
    macros: tuple[str, ...], refusal: str
) -> None:
    command = ["gcc", "-fsyntax-only", "-x", "c", *macros, str(runtime_file("pe_limits.h"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert refusal in done.stderr


def test_templates_assert_the_parameters_that_they_test() -> None:
    """Other parameters fail where they are used; in `#if` a missing macro would be 0."""
    templates = {path.name: path.read_text() for path in (RUNTIME / "kernels").glob("*.inc.h")}
    for name, text in templates.items():
        parts = [text, *(templates[part] for part in re.findall(r'#include "(\w+.inc.h)"', text))]
        defined = {macro for part in parts for macro in re.findall(r"#define (PE_\w+)", part)}
        tests = "\n".join(re.findall(r"^#(?:el)?if (.*)$", text.replace("\\\n", " "), re.M))
        asserted = set(re.findall(r"!defined\((PE_\w+)\)", tests))
        tested = set(re.findall(r"(?<!defined\()\bPE_\w+", tests))
        assert tested - asserted - defined == set(), name
    assert len(templates) > 40


def _zeros() -> np.ndarray:
    return np.zeros(4, np.float32)
