"""The text for OpenCL builds and runs: by PoCL, which is OpenCL on a CPU and no GPU."""

from pathlib import Path

import numpy as np
import pytest

import pockengine
from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.opencl import OpenCl
from pockengine.backends.gpu.opencl_step import OpenClStep
from pockengine.compiler.compile import Training, compile_program
from pockengine.devices import load_device
from pockengine.errors import BuildError, RuntimeFailure
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.trainings import TRAININGS

RATE = np.float32(0.01)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OpenCl:
    """The first device; PoCL keeps what it builds in a folder of the test's own."""
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    try:
        return OpenCl()
    except RuntimeFailure as error:
        pytest.skip(str(error))


def test_a_training_is_that_of_c(device: OpenCl) -> None:
    graph, options = TRAININGS["mobile-sparse"]
    backend = GpuBackend(load_device("host"))
    program = compile_program(graph, Training(**options), target=backend.target())
    step = OpenClStep(device, program, "train", backend.gpu_kernel)
    with pockengine.compile(graph, None, backend="c", **options).session() as session:
        for number in range(10):
            batch = draw(graph, number)
            found = step.run({**batch, "lr": RATE})["loss"]
            wanted = session.train_step(batch, float(RATE))["loss"]
            np.testing.assert_allclose(found, wanted, rtol=1e-4)
        for name, array in session.params().items():
            np.testing.assert_allclose(step.param(name), array, rtol=1e-4, atol=1e-4, err_msg=name)


def test_what_the_driver_refuses_is_told(device: OpenCl) -> None:
    with pytest.raises(BuildError, match="does not build the kernels:\n"):
        device.build("__kernel void k(__global float *x) { x[0] = nothing; }")


def test_a_machine_without_opencl_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pockengine.backends.gpu.opencl.find_library", lambda name: None)
    with pytest.raises(RuntimeFailure, match="this machine has no libOpenCL: install"):
        OpenCl()
