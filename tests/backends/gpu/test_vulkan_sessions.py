"""Sessions and the runner with Vulkan on this machine: Mesa's lavapipe, a CPU.

Without Vulkan or Slang's compiler the tests are skipped; bazelw installs both.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import pockengine
from pockengine.backends.gpu.vulkan import VulkanBackend
from pockengine.compiled import Compiled
from pockengine.devices import load_device
from pockengine.errors import CompileError, DeviceError
from pockengine.tests.backends.gpu.driven import NETS, STEPS, resumed, run_training, trained
from pockengine.tests.backends.gpu.watched_vulkan import LIBRARY, build_watched, validation
from pockengine.tests.backends.session_tests import SessionTests
from pockengine.tests.compiler.small_nets import residual_net

VULKAN = {"device": "host-vulkan", "backend": "vulkan"}


@pytest.fixture(scope="module", autouse=True)
def validated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with validation(tmp_path_factory.mktemp("layers")):
        yield


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return pockengine.compile(residual_net(), None, scheme="head-only", **VULKAN)


class TestSession(SessionTests):
    backend, device = "vulkan", "host-vulkan"


@pytest.mark.parametrize("name", NETS)
def test_ten_steps_are_those_of_c(name: str) -> None:
    graph, options = NETS[name]
    with pockengine.compile(graph, None, **VULKAN, **options).session() as session:
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


@pytest.mark.parametrize("flags", [(), ("-DSTAGED",)], ids=["mapped", "staged"])
def test_the_runner_trains_as_a_session_does(
    flags: tuple[str, ...], compiled: Compiled, tmp_path: Path
) -> None:
    build_watched(tmp_path, flags)
    done = run_training(compiled, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    with compiled.session() as session:
        expected = trained(session, compiled.graph)
    losses = [line["loss"] for line in lines if "loss" in line]
    np.testing.assert_allclose(losses, expected["losses"], rtol=1e-6)
    for key, array in load_file(tmp_path / "saved").items():
        np.testing.assert_array_equal(array, expected[key], err_msg=key)
    submits, waits, copies, made, released = _counts(done.stderr)
    spec = compiled.artifact.entries["train"]
    memories = 3  # one each for the program's numbers, the params and the frozen params
    transfers = STEPS * (len(spec.inputs) + len(spec.outputs)) + memories + 1
    assert copies == (transfers if flags else 0)
    assert submits == waits == STEPS + copies
    assert made == released


def _counts(output: str) -> list[int]:
    return list(map(int, re.findall(r" (\d+)", output)[-5:]))


TROUBLES = {
    "no device": (["-DDEVICES=0"], "no Vulkan 1.2 device with a compute queue: see what vulk"),
    "features": (["-DFEATURES"], "lacks Vulkan's shaderInt64, which the kernels need: update"),
    "memory": (
        ["-DMEMORY=1000000", "-DMOST=7000"],
        r"planned with \d+ bytes of device memory \(params \d+, frozen \d+, arena \d+\), and .* "
        "has 1000000, of which a buffer takes 7000 at most: give a memory_budget of 7000 bytes",
    ),
    "no memory": (["-DMEMORY=512", "-DMOST=512"], "no batch is small enough; .*4 or 8 bits"),
    "types": (["-DTYPES=0"], "allows no buffers in its memory of type 0: compile for"),
    "items": (["-DITEMS=16"], r"groups of at most 16 items, and pe_gpu_\w+ has \d+: compile for"),
    "shared": (["-DSHARED=64"], r"has 64 bytes of shared memory, and a group of pe_gpu_\w+ needs"),
    "fault": (["-DFAULT=3"], "vkQueueWaitIdle: error -4, the device is lost, with all training"),
    "incomplete": (["-DvkQueueWaitIdle=vkOther"], "library lacks vkQueueWaitIdle, .*Vulkan 1.2"),
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
    _, _, _, made, released = _counts(done.stderr)
    assert made == released


def test_a_machine_without_vulkan_is_reported(compiled: Compiled, tmp_path: Path) -> None:
    for name in (LIBRARY, LIBRARY.removesuffix(".1")):
        (tmp_path / name).write_text("no library", encoding="utf-8")
    done = run_training(compiled, tmp_path)
    assert done.returncode != 0
    assert re.search(r"this machine has no Vulkan \(.*\): install the GPU's driver", done.stderr)


def test_a_machine_without_drivers_is_reported(compiled: Compiled, tmp_path: Path) -> None:
    done = run_training(compiled, tmp_path, VK_ICD_FILENAMES=str(tmp_path / "none.json"))
    assert done.returncode != 0
    assert "vkCreateInstance: error -9, no driver is registered" in done.stderr


def test_a_phones_runner_is_built_with_the_modules_inside() -> None:
    phone = pockengine.compile(residual_net(), None, device="adreno-740", backend="vulkan")
    runner = phone.artifact.executable
    assert runner is not None
    data = runner.read_bytes()
    assert data[18:20] == b"\xb7\0"  # EM_AARCH64
    assert b"\x03\x02\x23\x07" in data  # SPIR-V's magic number
    assert b"libvulkan.so.1" in data


def test_devices_without_such_a_gpu_are_refused() -> None:
    with pytest.raises(DeviceError, match="host takes no backend 'vulkan'"):
        pockengine.compile(residual_net(), None, backend="vulkan")
    with pytest.raises(CompileError, match="device h100 has no GPU that takes Vulkan"):
        VulkanBackend(load_device("h100"))
    with pytest.raises(CompileError, match="backend vulkan has no option bf16"):
        pockengine.compile(residual_net(), None, bf16=True, **VULKAN)
