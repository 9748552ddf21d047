"""Sessions and the runner with OpenCL on this machine: PoCL, a CPU and no GPU.

Without OpenCL the tests are skipped; bazelw installs PoCL.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import pockengine
from pockengine.backends.cache import own_cache
from pockengine.backends.gpu.opencl import OpenClBackend
from pockengine.compiled import Compiled
from pockengine.devices import load_device
from pockengine.errors import CompileError, DeviceError
from pockengine.tests.backends.gpu.driven import NETS, STEPS, resumed, run_training, trained
from pockengine.tests.backends.gpu.watched_opencl import LIBRARY, build_watched, has_opencl
from pockengine.tests.backends.session_tests import SessionTests
from pockengine.tests.compiler.small_nets import residual_net

OPENCL = {"device": "host-opencl", "backend": "opencl"}


@pytest.fixture(scope="module", autouse=True)
def opencl_cache() -> Iterator[None]:
    """PoCL's cache, beside the C compiler's objects, so the next run reuses it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", str(own_cache() / "pocl"))
        if not has_opencl():
            pytest.skip("this machine has no OpenCL")
        yield


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return pockengine.compile(residual_net(), None, scheme="head-only", **OPENCL)


class TestSession(SessionTests):
    backend, device = "opencl", "host-opencl"


@pytest.mark.parametrize("name", NETS)
def test_ten_steps_are_those_of_c(name: str) -> None:
    graph, options = NETS[name]
    with pockengine.compile(graph, None, **OPENCL, **options).session() as session:
        found = trained(session, graph)
    with pockengine.compile(graph, None, backend="c", **options).session() as session:
        expected = trained(session, graph)
    for key, array in expected.items():
        most = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-4 * most, err_msg=key)


def test_a_training_resumes_bit_for_bit(compiled: Compiled, tmp_path: Path) -> None:
    expected, found = resumed(compiled, tmp_path)
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)


def test_the_runner_trains_as_a_session_does(compiled: Compiled, tmp_path: Path) -> None:
    build_watched(tmp_path)
    done = run_training(compiled, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    with compiled.session() as session:
        expected = trained(session, compiled.graph)
    losses = [line["loss"] for line in lines if "loss" in line]
    np.testing.assert_allclose(losses, expected["losses"], rtol=1e-6)
    for key, array in load_file(tmp_path / "saved").items():
        np.testing.assert_array_equal(array, expected[key], err_msg=key)


def test_a_step_waits_once_and_copies_inputs_and_outputs(
    compiled: Compiled, tmp_path: Path
) -> None:
    build_watched(tmp_path)
    stderr = run_training(compiled, tmp_path).stderr
    there, here, launches, waits, made, released = map(int, re.findall(r" (\d+)", stderr)[-6:])
    spec = compiled.artifact.entries["train"]
    memories = 3  # one each for the program's numbers, the params and the frozen params
    assert there == STEPS * len(spec.inputs) + memories
    assert here == STEPS * len(spec.outputs) + 1  # the params, to be saved
    assert waits == STEPS + 2  # after opening, and after the transfer of the params
    assert launches % STEPS == 0
    assert launches // STEPS >= len(compiled.program.entries["train"].graph.nodes) / 2
    assert made == released


TROUBLES = {
    "no device": (["-DDEVICES=0"], "OpenCL has no device: see what clinfo lists"),
    "memory": (
        ["-DMEMORY=1000000", "-DMOST=7000"],
        r"planned with \d+ bytes of device memory \(params \d+, frozen \d+, arena \d+\), and .* "
        "has 1000000, of which a buffer takes 7000 at most: give a memory_budget of 7000 bytes",
    ),
    "no memory": (["-DMEMORY=512", "-DMOST=512"], "no batch is small enough; .*4 or 8 bits"),
    "text": (
        ['-DTEXT="__kernel void k(__global float *x) { x[0] = nothing; }"'],
        "does not build the kernels of program .*undeclared identifier 'nothing'.*: update its",
    ),
    "items": (["-DITEMS=16"], r"groups of 16 items of pe_gpu_\w+ at most, and \d+ are launched"),
    "fault": (["-DFAULT=3"], "clFinish: error -14, a kernel before it failed: .*open another"),
    "incomplete": (["-DclFinish=clOther"], "library lacks clFinish, .*OpenCL 1.2: install"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_machine_that_cannot_run_it_is_reported(
    name: str, compiled: Compiled, tmp_path: Path
) -> None:
    flags, words = TROUBLES[name]
    build_watched(tmp_path, flags)
    done = run_training(compiled, tmp_path)
    assert done.returncode != 0
    assert re.search(words, done.stderr), done.stderr
    made, released = re.findall(r"made (\d+), released (\d+)", done.stderr)[-1]
    assert made == released


def test_a_machine_without_opencl_is_reported(compiled: Compiled, tmp_path: Path) -> None:
    for name in (LIBRARY, LIBRARY.removesuffix(".1")):
        (tmp_path / name).write_text("no library", encoding="utf-8")
    done = run_training(compiled, tmp_path)
    assert done.returncode != 0
    assert re.search(r"this machine has no OpenCL \(.*\): install the GPU's driver", done.stderr)


def test_a_machine_without_drivers_is_reported(compiled: Compiled, tmp_path: Path) -> None:
    done = run_training(compiled, tmp_path, OCL_ICD_VENDORS=str(tmp_path))
    assert done.returncode != 0
    assert "clGetPlatformIDs: error -1001, no driver is registered" in done.stderr


def test_a_phones_runner_is_built_with_the_text_inside() -> None:
    phone = pockengine.compile(residual_net(), None, device="adreno-740", backend="opencl")
    runner = phone.artifact.executable
    assert runner is not None
    data = runner.read_bytes()
    assert data[18:20] == b"\xb7\0"  # EM_AARCH64
    assert b"reqd_work_group_size" in data
    assert b"libOpenCL.so.1" in data


def test_devices_without_such_a_gpu_are_refused() -> None:
    with pytest.raises(DeviceError, match="host takes no backend 'opencl'"):
        pockengine.compile(residual_net(), None, backend="opencl")
    with pytest.raises(CompileError, match="device h100 has no GPU that takes OpenCL"):
        OpenClBackend(load_device("h100"))
    with pytest.raises(CompileError, match="backend opencl has no option bf16"):
        pockengine.compile(residual_net(), None, bf16=True, **OPENCL)
