"""Names that C and C++ programs see, whatever the model calls itself."""

import re

import numpy as np
import pytest

from pockengine import __version__
from pockengine.backends.c.interface import header_name, header_text, identifier, program_symbol
from pockengine.backends.specification import ABI
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.devices import load_device
from pockengine.tests.backends.c.harness import RUNTIME
from pockengine.tests.backends.c.programs import compile_for

HOSTILE = ["", "pe", "pe_host", "3d net", 'a"b', "größe", "int", "x" * 500, "a/../b", "*/"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_identifiers_and_no_file_of_the_runtime(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_]{1,60}", identifier(name))
    assert re.fullmatch(r"pe_program_\w+", program_symbol(name))
    assert not (RUNTIME / header_name(name)).exists()


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
    text = (RUNTIME / "pe.h").read_text()
    assert f'#define PE_VERSION "{__version__}"' in text
    assert f"#define PE_ABI {ABI}\n" in text


def _zeros() -> np.ndarray:
    return np.zeros(4, np.float32)
