"""Sessions and the runner with Vulkan on this machine: Mesa's lavapipe, a CPU.

Without Vulkan or Slang's compiler the tests are skipped; bazelw installs both.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pockengine.backends.gpu.vulkan import VulkanBackend
from pockengine.compiled import Compiled
from pockengine.tests.backends.gpu.driven import STEPS
from pockengine.tests.backends.gpu.driven_tests import MEMORY, DrivenTests
from pockengine.tests.backends.gpu.watched_vulkan import LIBRARY, build_watched, validation


@pytest.fixture(scope="module", autouse=True)
def validated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with validation(tmp_path_factory.mktemp("layers")):
        yield


TROUBLES = {
    **MEMORY,
    "no device": (["-DDEVICES=0"], "no Vulkan 1.2 device with a compute queue: see what vulk"),
    "features": (["-DFEATURES"], "lacks Vulkan's shaderInt64, which the kernels need: update"),
    "types": (["-DTYPES=0"], "allows no buffers in its memory of type 0: compile for"),
    "items": (["-DITEMS=16"], r"groups of at most 16 items, and pe_gpu_\w+ has \d+: compile for"),
    "shared": (["-DSHARED=64"], r"has 64 bytes of shared memory, and a group of pe_gpu_\w+ needs"),
    "fault": (["-DFAULT=3"], "vkQueueWaitIdle: error -4, the device is lost, with all training"),
    "incomplete": (["-DvkQueueWaitIdle=vkOther"], "library lacks vkQueueWaitIdle, .*Vulkan 1.2"),
}


class TestSession(DrivenTests):
    backend, device, title, library = "vulkan", "host-vulkan", "Vulkan", LIBRARY
    form, make, watched = b"\x03\x02\x23\x07", VulkanBackend, build_watched  # SPIR-V's number
    unregistered = {"VK_ICD_FILENAMES": "{}/none.json"}, "vkCreateInstance: error -9"

    @pytest.mark.parametrize("flags", [(), ("-DSTAGED",)], ids=["mapped", "staged"])
    def test_the_runner_trains_as_a_session_does(
        self, flags: tuple[str, ...], compiled: Compiled, tmp_path: Path
    ) -> None:
        counted = self.check_runner(compiled, tmp_path, flags)
        submits, waits, copies, made, released = map(int, re.findall(r" (\d+)", counted)[-5:])
        spec = compiled.artifact.entries["train"]
        memories = 3  # one each for the program's numbers, the params and the frozen params
        transfers = STEPS * (len(spec.inputs) + len(spec.outputs)) + memories + 1
        assert copies == (transfers if flags else 0)
        assert submits == waits == STEPS + copies
        assert made == released

    @pytest.mark.parametrize("name", TROUBLES)
    def test_a_machine_that_cannot_run_it_is_reported(
        self, name: str, compiled: Compiled, tmp_path: Path
    ) -> None:
        self.check_trouble(TROUBLES[name], compiled, tmp_path)
