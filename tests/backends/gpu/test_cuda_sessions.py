"""Whole programs that launch kernels through CUDA's driver, with a fake driver."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import pockengine
from pockengine.backends.gpu.cuda import CudaBackend
from pockengine.backends.native.profile import profile_step
from pockengine.backends.placement import kernel_nodes
from pockengine.compiled import Compiled
from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Sgd
from pockengine.compiler.program import Program
from pockengine.devices import load_device
from pockengine.errors import CompileError, DeviceError, RuntimeFailure
from pockengine.farm.gpu.driver import DRIVER, TWINS, build_driver, build_twins
from pockengine.tests.backends.gpu.driven import RATE, STEPS, resumed, trained, training_arguments
from pockengine.tests.backends.gpu.fake_cuda import HOST, Fake, Machine
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.session_tests import SessionTests
from pockengine.tests.backends.trainings import TRAININGS
from pockengine.tests.compiler.small_nets import residual_net

CUDA = {"device": "h100", "backend": "cuda"}
NETS: dict[str, tuple[Graph, dict[str, Any]]] = {
    "residual": (residual_net(), {"optimizer": Sgd(momentum=0.9)}),
    "micro-batches": (residual_net(), {"micro_batches": 2, "scheme": "head-only"}),
    "bert-lora": TRAININGS["bert-lora"],
}


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fake]:
    """The driver, which knows the kernels of every written program."""
    driver = Fake(tmp_path_factory.mktemp("driver"))
    write = CudaBackend.write

    def written(self: CudaBackend, program: Program, folder: Path) -> None:
        write(self, program, folder)
        driver.know(self.kernels(program))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaBackend, "write", written)
        yield driver


@pytest.fixture(autouse=True)
def machine(fake: Fake) -> Iterator[Fake]:
    """An H100; afterwards the test's sessions must have freed everything."""
    fake.set(Machine())
    before = fake.counts().live
    yield fake
    assert fake.counts().live <= before


@pytest.fixture(scope="module")
def compiled(fake: Fake) -> Compiled:
    return pockengine.compile(residual_net(), None, scheme="head-only", **CUDA)


class TestSession(SessionTests):
    backend, device = "cuda", "h100"


@pytest.mark.parametrize("name", NETS)
def test_ten_steps_are_those_of_the_emulation_and_of_c(name: str, machine: Fake) -> None:
    graph, options = NETS[name]
    program = pockengine.compile(graph, None, **CUDA, **options)
    with program.session() as session:
        found = trained(session, graph)
    for backend, tolerance in (("gpu", 0.0), ("c", 1e-4)):
        with pockengine.compile(graph, None, backend=backend, **options).session() as session:
            expected = trained(session, graph)
        for key, array in expected.items():
            most = max(1.0, float(np.abs(array).max()))
            np.testing.assert_allclose(
                found[key], array, rtol=tolerance, atol=tolerance * most, err_msg=f"{backend} {key}"
            )


def test_tensor_cores_are_those_of_the_emulation(machine: Fake) -> None:
    graph, options = TRAININGS["bert-lora"]
    found = []
    for where in (CUDA, {"backend": "gpu"}):
        with pockengine.compile(graph, None, bf16=True, **where, **options).session() as session:
            found.append(trained(session, graph))
    for key, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][key], err_msg=key)


def test_a_step_is_one_graph_that_is_captured_once(compiled: Compiled, machine: Fake) -> None:
    batch = draw(compiled.graph, 0)
    with compiled.session() as session:
        session.train_step(batch, RATE)
        first = machine.counts()
        machine.set(Machine())
        for _ in range(STEPS):
            session.train_step(batch, RATE)
        after = machine.counts()
    spec = compiled.artifact.entries["train"]
    assert (first.captures, first.graph_launches, first.launches) == (1, 1, 0)
    assert first.launches_in_captures >= len(compiled.program.entries["train"].graph.nodes) / 2
    assert (after.captures, after.graph_launches, after.launches) == (0, STEPS, 0)
    assert after.bytes_there == STEPS * sum(type_.nbytes for type_ in spec.inputs.values())
    assert after.bytes_here == STEPS * sum(type_.nbytes for type_ in spec.outputs.values())


def test_params_come_back_once_and_only_where_they_were_written(
    compiled: Compiled, machine: Fake
) -> None:
    batch = draw(compiled.graph, 0)
    with compiled.session() as session:
        session.evaluate({key: batch[key] for key in compiled.artifact.entries["evaluate"].inputs})
        machine.set(Machine())
        session.params()
        assert machine.counts().bytes_here == 0
        outputs = session.train_step(batch, RATE)
        session.params()
        session.params()
        returned = sum(array.nbytes for array in outputs.values())
        assert machine.counts().bytes_here == compiled.artifact.params_bytes + returned


def test_a_training_resumes_bit_for_bit(compiled: Compiled, tmp_path: Path) -> None:
    expected, found = resumed(compiled, tmp_path)
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (Machine(version=11040), r"driver is of version 11\.4, and the program needs 12\.0"),
        (Machine(sm=87), 'compiled for sm_90, and an emulated sm_87 is sm_87: compile .* "sm_87"'),
        (Machine(devices=0), r"cuInit: CUDA_ERROR_NO_DEVICE, .*nvidia-smi"),
        (
            Machine(memory=8000),
            r"planned with \d+ bytes of device memory \(params \d+, frozen \d+, arena \d+\), and "
            r"an emulated sm_90 has 8000 free of 8000: give a memory_budget of \d+ bytes",
        ),
        (Machine(memory=512), "has 512 free of 512: no batch is small enough; .*4 or 8 bits"),
    ],
    ids=["old", "architecture", "no device", "memory", "no memory"],
)
def test_a_machine_that_cannot_run_it_is_reported(
    at: Machine, words: str, compiled: Compiled, machine: Fake
) -> None:
    machine.set(at)
    with pytest.raises(RuntimeFailure, match=words):
        compiled.session()
    assert machine.counts().live == 0


def test_a_fault_of_a_kernel_is_reported(compiled: Compiled, machine: Fake) -> None:
    with compiled.session() as session:
        machine.set(Machine(fault=700))
        with pytest.raises(RuntimeFailure, match=r"illegal memory access.*open another one"):
            session.train_step(draw(compiled.graph, 0), RATE)


def _run(compiled: Compiled, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the runner with the driver in a folder."""
    command = [str(compiled.artifact.executable), *arguments]
    place = {"LD_LIBRARY_PATH": str(folder)}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=place)


def test_the_runner_trains_as_a_session_does(compiled: Compiled, tmp_path: Path) -> None:
    build_driver(HOST, tmp_path, ["-DFAKE_SM=90"])
    kernels = CudaBackend(load_device("h100")).kernels(compiled.program)
    build_twins(HOST, kernels, tmp_path / TWINS)
    arguments = training_arguments(compiled, tmp_path)
    done = _run(compiled, tmp_path, *arguments, "--save", str(tmp_path / "saved"))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = [line["loss"] for line in lines if "loss" in line]
    with compiled.session() as session:
        expected = trained(session, compiled.graph)
    np.testing.assert_allclose(found, expected["losses"], rtol=1e-6)
    for key, array in load_file(tmp_path / "saved").items():
        np.testing.assert_array_equal(array, expected[key], err_msg=key)


def test_launches_are_timed_each_as_a_graph_of_its_own(compiled: Compiled, tmp_path: Path) -> None:
    build_driver(HOST, tmp_path, ["-DFAKE_SM=90"])
    backend = CudaBackend(load_device("h100"))
    build_twins(HOST, backend.kernels(compiled.program), tmp_path / TWINS)

    def run(runner: Path, files: Mapping[str, Path], arguments: Sequence[str]) -> str:
        command = [str(runner), *(argument.format_map(files) for argument in arguments)]
        place = {"LD_LIBRARY_PATH": str(tmp_path)}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=place)
        return done.stdout

    inputs = draw(compiled.graph, 0)
    times = profile_step(compiled.program, backend, inputs, steps=2, run=run)
    assert len(times) == len(kernel_nodes(compiled.program.entries["train"]))
    assert all(0 < time.least_ns <= time.median_ns for time in times)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (None, "this machine has no CUDA driver .*: install NVIDIA's"),
        (["-DcuGraphLaunch=cuOther"], "lacks cuGraphLaunch: install NVIDIA's driver anew"),
    ],
    ids=["none", "incomplete"],
)
def test_a_driver_that_is_none_is_reported(
    flags: list[str] | None, words: str, compiled: Compiled, tmp_path: Path
) -> None:
    if flags is None:
        (tmp_path / DRIVER).write_text("no library", encoding="utf-8")
    else:
        build_driver(HOST, tmp_path, flags)
    done = _run(compiled, tmp_path, *training_arguments(compiled, tmp_path))
    assert done.returncode != 0
    assert '"loss"' not in done.stdout
    assert re.search(words, done.stderr), done.stderr


def test_devices_without_such_a_gpu_are_refused() -> None:
    with pytest.raises(DeviceError, match="host takes no backend 'cuda'"):
        pockengine.compile(residual_net(), None, backend="cuda")
    with pytest.raises(CompileError, match="device adreno-740 has no GPU that takes CUDA"):
        CudaBackend(load_device("adreno-740"))
    with pytest.raises(CompileError, match="backend cuda has no option prepare"):
        pockengine.compile(residual_net(), None, prepare=True, **CUDA)
