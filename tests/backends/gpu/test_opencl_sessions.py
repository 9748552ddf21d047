"""Sessions and the runner with OpenCL on this machine: PoCL, a CPU and no GPU.

Without OpenCL the tests are skipped; bazelw installs PoCL.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pockengine.backends.cache import own_cache
from pockengine.backends.gpu.opencl import OpenClBackend
from pockengine.compiled import Compiled
from pockengine.tests.backends.gpu.driven import STEPS
from pockengine.tests.backends.gpu.driven_tests import MEMORY, DrivenTests
from pockengine.tests.backends.gpu.watched_opencl import LIBRARY, build_watched, has_opencl


@pytest.fixture(scope="module", autouse=True)
def opencl_cache() -> Iterator[None]:
    """PoCL's cache, beside the C compiler's objects, so the next run reuses it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", str(own_cache() / "pocl"))
        if not has_opencl():
            pytest.skip("this machine has no OpenCL")
        yield


TROUBLES = {
    **MEMORY,
    "no device": (["-DDEVICES=0"], "OpenCL has no device: see what clinfo lists"),
    "text": (
        ['-DTEXT="__kernel void k(__global float *x) { x[0] = nothing; }"'],
        "does not build the kernels of program .*undeclared identifier 'nothing'.*: update its",
    ),
    "items": (["-DITEMS=16"], r"groups of 16 items of pe_gpu_\w+ at most, and \d+ are launched"),
    "fault": (["-DFAULT=3"], "clFinish: error -14, a kernel before it failed: .*open another"),
    "incomplete": (["-DclFinish=clOther"], "library lacks clFinish, .*OpenCL 1.2: install"),
}


class TestSession(DrivenTests):
    backend, device, title, library = "opencl", "host-opencl", "OpenCL", LIBRARY
    form, make, watched = b"reqd_work_group_size", OpenClBackend, build_watched
    unregistered = {"OCL_ICD_VENDORS": "{}"}, "clGetPlatformIDs: error -1001"

    def test_the_runner_trains_as_a_session_does(self, compiled: Compiled, tmp_path: Path) -> None:
        self.check_runner(compiled, tmp_path)

    def test_a_step_waits_once_and_copies_inputs_and_outputs(
        self, compiled: Compiled, tmp_path: Path
    ) -> None:
        stderr = self.run(compiled, tmp_path).stderr
        there, here, launches, waits, made, released = map(int, re.findall(r" (\d+)", stderr)[-6:])
        spec = compiled.artifact.entries["train"]
        memories = 3  # one each for the program's numbers, the params and the frozen params
        assert there == STEPS * len(spec.inputs) + memories
        assert here == STEPS * len(spec.outputs) + 1  # the params, to be saved
        assert waits == STEPS + 2  # after opening, and after the transfer of the params
        assert launches % STEPS == 0
        assert launches // STEPS >= len(compiled.program.entries["train"].graph.nodes) / 2
        assert made == released

    @pytest.mark.parametrize("name", TROUBLES)
    def test_a_machine_that_cannot_run_it_is_reported(
        self, name: str, compiled: Compiled, tmp_path: Path
    ) -> None:
        self.check_trouble(TROUBLES[name], compiled, tmp_path)
