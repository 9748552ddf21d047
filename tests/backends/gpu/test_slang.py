"""Kernels in Slang and their SPIR-V, which need no driver."""

import struct

import pytest

from pockengine.backends.gpu import slang
from pockengine.backends.gpu.slang import build_spirv
from pockengine.backends.gpu.slang_text import slang_text
from pockengine.backends.gpu.spirv import NAN_MODE, NO_CONTRACTION, exact_module, shared_bytes
from pockengine.errors import BuildError, MissingPackage

HEADER, DECORATE, EXECUTION_MODE, F_ADD, F_MUL = 5, 71, 16, 129, 133

KERNEL = """
[shader("compute")] [numthreads(8, 1, 1)]
void added(uint3 at : SV_GroupThreadID, uniform uint64_t address)
{
    static groupshared float rows[48];
    static groupshared int8_t bytes[16];
    Ptr<float> x = Ptr<float>(address);
    rows[at.x] = x[at.x] * 3.0f + x[at.x + 8];
    bytes[at.x] = (int8_t)at.x;
    GroupMemoryBarrierWithGroupSync();
    x[at.x] = rows[7 - at.x] + bytes[at.x ^ 1];
}
"""


@pytest.fixture(scope="module")
def module() -> bytes:
    pytest.importorskip("slangpy")
    (module,) = build_spirv(KERNEL, ["added"])
    return module


def instructions(module: bytes) -> list[tuple[int, ...]]:
    """Return opcodes with operands."""
    words = struct.unpack(f"<{len(module) // 4}I", module)
    found, at = [], HEADER
    while at < len(words):
        length = words[at] >> 16
        found.append((words[at] & 0xFFFF, *words[at + 1 : at + length]))
        at += length
    return found


def test_every_sum_and_product_is_rounded_as_written(module: bytes) -> None:
    exact = instructions(exact_module(module))
    results = {words[2] for words in exact if words[0] in (F_ADD, F_MUL)}
    decorated = {words[1] for words in exact if words[0] == DECORATE and words[2] == NO_CONTRACTION}
    assert len(results) >= 3
    assert results <= decorated


def test_nan_of_f32_is_preserved(module: bytes) -> None:
    modes = [words for words in instructions(exact_module(module)) if words[0] == EXECUTION_MODE]
    assert any(words[2:] == (NAN_MODE, 32) for words in modes)


def test_shared_memory_is_the_sum_of_a_groups_arrays(module: bytes) -> None:
    assert shared_bytes(module) == 48 * 4 + 16


def test_rejected_kernels_are_reported_with_the_first_error() -> None:
    pytest.importorskip("slangpy")
    with pytest.raises(BuildError, match=r"(?s)Slang rejects the kernels:\n.*'nothing'"):
        build_spirv(KERNEL.replace("3.0f", "nothing"), ["added"])


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slang, "WHEEL", "no_slang")
    slang._library.cache_clear()
    with pytest.raises(MissingPackage, match="building for Vulkan needs no_slang: pip install"):
        build_spirv(KERNEL, ["added"])
    slang._library.cache_clear()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "PE_FUNCTION void f(PE_PRIVATE float *x) {\n*x = 1;",
            "PE_FUNCTION void f(PE_PRIVATE inout float x) {\nx = 1;",
        ),
        (
            "PE_FUNCTION int g(PE_PRIVATE int at[4]) {",
            "PE_FUNCTION int g(PE_PRIVATE inout int at[4]) {",
        ),
        (
            "PE_FUNCTION float h(PE_LOCAL float *x, const PE_GLOBAL float *y) {",
            "PE_FUNCTION float h(PE_LOCAL(float) x, Ptr<float> y) {",
        ),
        ("f(&sum);\ny = a * b;", "f(sum);\ny = a * b;"),
        ("x = (pe_i64)at[0] + (pe_i64)(a + b);", "x = pe_wide(at[0]) + (pe_i64)(a + b);"),
        ("    (void)unused;\nx = 1;", "x = 1;"),
    ],
)
def test_pointers_of_the_dialect_are_those_of_slang(text: str, expected: str) -> None:
    assert slang_text(text) == expected
