"""What the emulation finds: barriers that are missing or divergent, and local memory misused."""

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.c.toolchain import find_toolchain
from pockengine.backends.gpu.source import DIALECT
from pockengine.devices import load_device
from pockengine.tests.backends.gpu.orders import ORDERS

ITEMS = 64
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


def results(library: Path) -> list[np.ndarray]:
    """Return what a kernel writes in each order."""
    x = np.arange(ITEMS, dtype=np.float32)
    found = []
    for order in ORDERS:
        y = np.zeros(ITEMS, np.float32)
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


def test_local_memory_that_nobody_wrote_is_nan(tmp_path: Path) -> None:
    for y in results(built(UNWRITTEN, tmp_path)):
        assert np.isnan(y).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (DIVERGENT, "divergent barrier"),
        (OTHER_BARRIER, "divergent barrier"),
        (BEHIND, "a write behind its local memory"),
        (TOO_MUCH, "more local memory than every device has"),
    ],
    ids=["some", "another", "behind", "much"],
)
def test_what_is_undefined_ends_the_process(
    body: str, words: str, order: int, tmp_path: Path
) -> None:
    library = built(body, tmp_path)
    command = [sys.executable, "-c", CALLER, str(library), str(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert f"kernel kernel: {words}" in done.stderr
