"""Faults that the emulation detects: missing or divergent barriers, and misused local memory.

Also a warp's product: which item holds which element, as in PTX.
"""

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.gpu.source import DIALECT
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.ir.scalars import numbers_of, to_bf16
from pockengine.devices import load_device
from pockengine.tests.backends.gpu.orders import ORDERS

ITEMS = 64
NUMBERS = np.arange(ITEMS, dtype=np.float32)
REVERSAL = """
    PE_SHARED(float, s, 64);
    s[pe_item()] = x[pe_item()];
    {barrier}
    y[pe_item()] = s[63 - pe_item()];
"""
DIVERGENT = "if (pe_item() < 32) { pe_barrier(); } y[pe_item()] = 0.0f;"
OTHER_BARRIER = """
    if (pe_item() < 32) {
        pe_barrier();
    } else {
        pe_barrier();
    }
    y[pe_item()] = 0.0f;
"""
BEHIND = "PE_SHARED(float, s, 64); s[pe_item() + 1] = x[0]; pe_barrier(); y[pe_item()] = s[0];"
UNWRITTEN = "PE_SHARED(float, s, 64); pe_barrier(); y[pe_item()] = s[pe_item()];"
TOO_MUCH = "PE_SHARED(float, s, 9000); s[pe_item()] = x[0]; y[pe_item()] = s[0];"
PRODUCT = """
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    pe_mma_bf16(sums, (const pe_u32 *)x + 6 * pe_item(), (const pe_u32 *)x + 6 * pe_item() + 4);
    for (int i = 0; i < 4; i++) { y[4 * pe_item() + i] = sums[i]; }
"""
TURNS = """
    PE_SHARED(pe_u32, s, 1);
    const pe_u32 none[4] = {0, 0, 0, 0};
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int turn = 1; turn < 9; turn++) {
        s[0] = (pe_u32)turn;
        pe_barrier();
        pe_mma_bf16(sums, none, none);
        y[pe_item()] += (float)s[0];
        BARRIER
    }
"""
HALF_A_WARP = """
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (pe_item() % 32 < 16) { pe_mma_bf16(sums, (const pe_u32 *)x, (const pe_u32 *)x); }
    pe_barrier();
    y[pe_item()] = sums[0];
"""

SOURCE = """#include "pe_gpu_cpu.h"
PE_KERNEL void kernel(PE_READ(float, x), PE_WRITE(float, y)) {{ {body} }}
static void call(void *const *p) {{ kernel(p[0], p[1]); }}
__attribute__((visibility("default"))) void run(float *x, float *y, unsigned order) {{
    static const pe_gpu_launch launch = {{"kernel", call, 1, 64}};
    void *const pointers[] = {{x, y}};
    pe_gpu_set_order(order);
    pe_gpu_run(&launch, pointers);
}}
"""
CALLER = """import ctypes, sys
memory = (ctypes.c_float * 64)()
ctypes.CDLL(sys.argv[1]).run(memory, memory, int(sys.argv[2]))
"""


def built(body: str, folder: Path) -> Path:
    """Build a kernel of one group and its emulation."""
    (folder / "kernel.c").write_text(SOURCE.format(body=body), encoding="utf-8")
    library = folder / "kernel.so"
    sources = [folder / "kernel.c", DIALECT / "cpu" / "pe_gpu_cpu.c"]
    includes = [f"-I{DIALECT}", f"-I{DIALECT / 'cpu'}"]
    toolchain = find_toolchain(load_device("host"))
    command = [*toolchain.command, "-std=gnu11", "-O2", "-fPIC"]
    command += ["-shared", *includes, *map(str, sources), "-o", str(library), "-lm", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, env=toolchain.environment)
    return library


def results(library: Path, x: np.ndarray = NUMBERS, size: int = ITEMS) -> list[np.ndarray]:
    """Return the floats written by a kernel in each order."""
    found = []
    for order in ORDERS:
        y = np.zeros(size, np.float32)
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (x, y))
        ctypes.CDLL(str(library)).run(*pointers, order)
        found.append(y)
    return found


def test_items_meet_at_a_barrier_in_every_order(tmp_path: Path) -> None:
    for y in results(built(REVERSAL.format(barrier="pe_barrier();"), tmp_path)):
        np.testing.assert_array_equal(y, np.arange(ITEMS, dtype=np.float32)[::-1])


def test_a_missing_barrier_shows_in_every_order(tmp_path: Path) -> None:
    for y in results(built(REVERSAL.format(barrier=""), tmp_path)):
        assert np.isnan(y).any()


def test_unwritten_local_memory_is_nan(tmp_path: Path) -> None:
    for y in results(built(UNWRITTEN, tmp_path)):
        assert np.isnan(y).all()


def elements_of(item: int, rows: int) -> list[tuple[int, int]]:
    """Return (row, k) of an item's elements in rows x 16: CuTe's layout."""
    t0, t1 = item % 4, item // 4
    strides = (rows, 8, 8 * rows) if rows == 16 else (rows, 8 * rows)
    places = []
    for v in range(2 ** len(strides)):
        offset = t0 * 2 * rows + t1
        offset += sum((v >> bit & 1) * stride for bit, stride in enumerate(strides))
        places.append((offset % rows, offset // rows))
    return places


def test_fragments_of_a_warp_follow_ptx(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b = (to_bf16(rng.standard_normal((2, n, 16))) for n in (16, 8))
    given = [
        [
            number
            for matrix, rows in ((a[item // 32], 16), (b[item // 32], 8))
            for number in (matrix[place] for place in elements_of(item % 32, rows))
        ]
        for item in range(ITEMS)
    ]
    x = np.array(given, a.dtype).view(np.float32)
    exact = np.einsum("wmk,wnk->wmn", *(numbers_of(x).astype(np.float64) for x in (a, b)))
    for y in results(built(PRODUCT, tmp_path), x, 4 * ITEMS):
        for item, sums in enumerate(y.reshape(ITEMS, 4)):
            row, column = item % 32 // 4, item % 4 * 2
            expected = exact[item // 32][[row, row, row + 8, row + 8], [column, column + 1] * 2]
            np.testing.assert_array_equal(sums, expected.astype(np.float32))


def test_a_warp_that_is_far_ahead_shows_a_missing_barrier(tmp_path: Path) -> None:
    turns = TURNS.replace("BARRIER", "pe_barrier();")
    for y in results(built(turns, tmp_path)):
        np.testing.assert_array_equal(y, np.full(ITEMS, 36, np.float32))
    (tmp_path / "without").mkdir()
    missing = results(built(TURNS.replace("BARRIER", ""), tmp_path / "without"))
    assert all((y != 36).any() for y in missing)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (DIVERGENT, "divergent barrier"),
        (OTHER_BARRIER, "divergent barrier"),
        (HALF_A_WARP, "divergent barrier: items of a warp"),
        (BEHIND, "a write behind its local memory"),
        (TOO_MUCH, "more local memory than every device has"),
    ],
    ids=["some", "another", "warp", "behind", "much"],
)
def test_what_is_undefined_ends_the_process(
    body: str, words: str, order: int, tmp_path: Path
) -> None:
    library = built(body, tmp_path)
    command = [sys.executable, "-c", CALLER, str(library), str(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert f"kernel kernel: {words}" in done.stderr
