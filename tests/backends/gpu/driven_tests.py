"""Tests of each driver that this machine has; derived classes name it."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import ClassVar

import numpy as np
import pytest
from safetensors.numpy import load_file

import pockengine
from pockengine.backends.gpu.opencl import OpenClBackend
from pockengine.backends.gpu.vulkan import VulkanBackend
from pockengine.compiled import Compiled
from pockengine.devices import load_device
from pockengine.errors import CompileError, DeviceError
from pockengine.tests.backends.gpu.driven import NETS, resumed, run_training, trained
from pockengine.tests.backends.session_tests import SessionTests
from pockengine.tests.compiler.small_nets import residual_net

MEMORY = {
    "memory": (
        ["-DMEMORY=1000000", "-DMOST=7000"],
        r"planned with \d+ bytes of device memory \(params \d+, frozen \d+, arena \d+\), and .* "
        "has 1000000, of which a buffer takes 7000 at most: give a memory_budget of 7000 bytes",
    ),
    "no memory": (["-DMEMORY=512", "-DMOST=512"], "no batch is small enough; .*4 or 8 bits"),
}
"""Troubles of every driver: the flags of its watched library, and the words of the error."""


class DrivenTests(SessionTests):
    """Derive `TestSession` from it, with a driver."""

    title: ClassVar[str]
    """Its name in messages."""
    library: ClassVar[str]
    form: ClassVar[bytes]
    """What a program's binary has of its kernels."""
    make: ClassVar[type[OpenClBackend | VulkanBackend]]
    """The backend for a device."""
    watched: ClassVar[Callable[[Path, Sequence[str]], None]]
    """Builds the watched library into a folder, with flags for a fault."""
    unregistered: ClassVar[tuple[Mapping[str, str], str]]
    """Variables of the environment with which no driver is registered, and the error."""

    def run(
        self, compiled: Compiled, folder: Path, flags: Sequence[str] = ()
    ) -> CompletedProcess[str]:
        """Train with the runner and the watched library."""
        type(self).watched(folder, flags)
        return run_training(compiled, folder)

    @pytest.mark.parametrize("name", NETS)
    def test_ten_steps_are_those_of_c(self, name: str) -> None:
        graph, options = NETS[name]
        with self.made(graph, **options).session() as session:
            found = trained(session, graph)
        with pockengine.compile(graph, None, backend="c", **options).session() as session:
            expected = trained(session, graph)
        for key, array in expected.items():
            most = max(1.0, float(np.abs(array).max()))
            np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-4 * most, err_msg=key)

    def test_a_training_resumes_bit_for_bit(self, compiled: Compiled, tmp_path: Path) -> None:
        expected, found = resumed(compiled, tmp_path)
        for key, array in expected.items():
            np.testing.assert_array_equal(found[key], array, err_msg=key)

    def check_runner(self, compiled: Compiled, folder: Path, flags: Sequence[str] = ()) -> str:
        """Check that the runner trains as a session does; return what the library counted."""
        done = self.run(compiled, folder, flags)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        with compiled.session() as session:
            expected = trained(session, compiled.graph)
        losses = [line["loss"] for line in lines if "loss" in line]
        np.testing.assert_allclose(losses, expected["losses"], rtol=1e-6)
        for key, array in load_file(folder / "saved").items():
            np.testing.assert_array_equal(array, expected[key], err_msg=key)
        return done.stderr

    def check_trouble(
        self, trouble: tuple[Sequence[str], str], compiled: Compiled, folder: Path
    ) -> None:
        """Check that a machine with a fault is reported, and all that was made is released."""
        flags, words = trouble
        done = self.run(compiled, folder, flags)
        assert done.returncode != 0
        assert re.search(words, done.stderr), done.stderr
        made, released = re.findall(r"made (\d+), released (\d+)", done.stderr)[-1]
        assert made == released

    def test_a_machine_without_the_library_is_reported(
        self, compiled: Compiled, tmp_path: Path
    ) -> None:
        for name in (self.library, self.library.removesuffix(".1")):
            (tmp_path / name).write_text("no library", encoding="utf-8")
        done = run_training(compiled, tmp_path)
        assert done.returncode != 0
        words = rf"this machine has no {self.title} \(.*\): install the GPU's driver"
        assert re.search(words, done.stderr)

    def test_a_machine_without_drivers_is_reported(
        self, compiled: Compiled, tmp_path: Path
    ) -> None:
        settings, words = self.unregistered
        places = {name: place.format(tmp_path) for name, place in settings.items()}
        done = run_training(compiled, tmp_path, **places)
        assert done.returncode != 0
        assert f"{words}, no driver is registered" in done.stderr

    def test_a_phones_runner_is_built_with_the_kernels_inside(self) -> None:
        phone = pockengine.compile(residual_net(), None, device="adreno-740", backend=self.backend)
        runner = phone.artifact.executable
        assert runner is not None
        data = runner.read_bytes()
        assert data[18:20] == b"\xb7\0"  # EM_AARCH64
        assert self.form in data
        assert self.library.encode() in data

    def test_devices_without_such_a_gpu_are_refused(self) -> None:
        with pytest.raises(DeviceError, match=f"host takes no backend '{self.backend}'"):
            pockengine.compile(residual_net(), None, backend=self.backend)
        with pytest.raises(CompileError, match=f"device h100 has no GPU that takes {self.title}"):
            self.make(load_device("h100"))
        with pytest.raises(CompileError, match=f"backend {self.backend} has no option bf16"):
            self.made(residual_net(), bf16=True)
