"""Int8 kernels in microcontroller firmware return the oracle's bits and write nothing else.

Shapes and bytes are those of tests/backends/c/integer_nodes.py. Guard bytes follow results and
scratch, and must not change.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.integers.helium import HeliumSpec
from pockengine.backends.native.build import FLAGS, FREESTANDING
from pockengine.backends.native.runtime_files import runtime_folders
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.ir import Builder, DType, Graph, TensorType
from pockengine.devices import Device, load_device
from pockengine.farm.boards.board import BUILT_IN, board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.firmware.link import link_files
from pockengine.farm.jobs.job import Job, run_job
from pockengine.tests.backends.c.harness import Case
from pockengine.tests.backends.c.integer_nodes import elementwise_nodes, products, rescalings

HERE = Path(__file__).parent
FIRMWARE = HERE.parents[2] / "farm" / "firmware"
I8 = DType.I8
CASES, MOST_VALUES = 20, 8


def run_as_firmware(cases: list[Case], device: Device, folder: Path) -> list[np.ndarray]:
    """Return each case's single result, computed on an emulated board."""
    folder.mkdir(exist_ok=True)
    firmware = link_files("cases", device, [_compiled(cases, device, folder)], [], folder)
    operands = folder / "operands"
    operands.write_bytes(b"".join(array.tobytes() for case in cases for array in case.operands))
    job = Job(firmware.path, inputs={"data": operands}, outputs=("out",), time_limit_s=120.0)
    with connect(board_for(device.name, load_boards([BUILT_IN]))) as board:
        data = run_job(board, job, folder, None).outputs["out"].read_bytes()
    found, offset = [], 0
    for case in cases:
        (value,) = case.node.results
        array = np.frombuffer(data, value.dtype.numpy, value.type.size, offset)
        found.append(array.reshape(value.shape))
        offset += value.type.nbytes
    assert offset == len(data)
    return found


def _compiled(cases: list[Case], device: Device, folder: Path) -> Path:
    """Compile all cases and their runner, with the flags of programs."""
    source, out, toolchain = folder / "cases.c", folder / "cases.o", find_toolchain(device)
    source.write_text(_text(cases))
    places = (*runtime_folders(freestanding=True), FIRMWARE, HERE)
    command = [*toolchain.command, *FLAGS, *FREESTANDING, *(f"-I{place}" for place in places)]
    command += ["-c", str(source), "-o", str(out)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=toolchain.environment, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]
    return out


def _text(cases: list[Case]) -> str:
    """Return the source: the kernels, and for each case a function and a table row."""
    kernels = {case.kernel.symbol: case.kernel.source for case in cases}
    calls, rows = [], []
    for index, case in enumerate(cases):
        values = [*case.node.operands, *case.node.results]
        arguments = ", ".join(f"p[{place}]" for place in range(len(values) + 1))
        calls.append(
            f"static void case_{index}(pe_worker *w, void **p) {{\n"
            f"    {case.kernel.symbol}(w, {arguments});\n}}"
        )
        sizes = ", ".join(str(value.type.nbytes) for value in values)
        count, scratch = len(case.node.operands), case.kernel.scratch_bytes
        rows.append(f"    {{case_{index}, {count}, {{{sizes}}}, {scratch}}},")
    table = "\n".join(["static const struct test tests[] = {", *rows, "};"])
    return "\n\n".join([_HEAD, *kernels.values(), *calls, table, '#include "run_cases.inc.h"\n'])


_HEAD = f"""#include "pe_math.h"
#include "pe_worker.h"
enum {{ MOST_VALUES = {MOST_VALUES} }};
struct test {{
    void (*job)(pe_worker *w, void **p);
    int operands;
    size_t bytes[MOST_VALUES], scratch;
}};"""


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm")
@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(found=st.lists(products(), min_size=CASES, max_size=CASES))
@pytest.mark.parametrize("name", ["alif-e3", "stm32u585"])
def test_products_match_the_oracle(tmp_path: Path, name: str, found: list[Any]) -> None:
    device = load_device(name)
    check(device, [*found, *rescalings()], tmp_path / "program")


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm")
def test_helium_rounding_and_clamping_match_the_oracle(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends = np.array([np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31), 3e9, 1e-42, -0.0], np.float32)
    x = np.resize(np.concatenate([ends, np.arange(-130, 130) / 2]), (5, 37)).astype("f4")
    known = {"x": x, "s": np.resize(np.array([1, 0.5, 0.37], np.float32), 37)}
    known |= {
        "one": np.array(1, "f4"),
        "q": rng.integers(-128, 127, (5, 37), np.int8, endpoint=True),
    }
    known["i"] = rng.integers(-(2**31), 2**31 - 1, (5, 37), np.int32, endpoint=True)
    known["i"][0, :9] = [-(2**31), 2**31 - 1, -129, -128, -91, -90, 120, 121, 0]
    check(load_device("alif-e3"), [(node, known) for node in elementwise_nodes()], tmp_path)


def check(device: Device, found: list[Any], folder: Path) -> None:
    """Compare the nodes' results on known operands with the oracle's."""
    backend = CBackend(device)
    cases = [
        Case(node, backend.kernel(node), tuple(known[value.name] for value in node.operands))
        for node, known in found
    ]
    for case, result in zip(cases, run_as_firmware(cases, device, folder), strict=True):
        np.testing.assert_array_equal(result, case.expected[0], str(case.node))


def test_helium_multiplies_blocks_of_supported_products() -> None:
    g = Builder(Graph("products"))
    x, dy = g.input("x", TensorType(I8, (1, 4, 4, 8))), g.input("dy", TensorType(I8, (1, 4, 4, 5)))
    w, deep = g.input("w", TensorType(I8, (1, 1, 8, 5))), g.input("d", TensorType(I8, (3, 3, 1, 8)))
    nodes = [
        g.emit("conv2d", x, w),
        g.emit("conv2d_dx", dy, w, input_shape=x.shape),
        g.emit("conv2d_dw", x, dy, weight_shape=w.shape),
        g.emit("conv2d", x, deep, groups=8, padding=(1, 1, 1, 1)),
        g.emit("conv2d_dx", x, deep, groups=8, padding=(1, 1, 1, 1), input_shape=x.shape),
    ]
    backend = CBackend(load_device("alif-e3"))
    assert all(isinstance(backend.choose(node).spec, HeliumSpec) for node in nodes)
