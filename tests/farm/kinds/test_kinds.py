"""Every kind of board trains a cross-built small CNN over its transport, with equal losses."""

import json
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.ir.evaluate import run
from pockengine.devices import load_device
from pockengine.farm.boards.board import BUILT_IN, board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.references.instructions import count_twice
from pockengine.farm.transports.emulated import QEMU
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph
from pockengine.tests.backends.c.runner import as_rows

STEPS, BATCH, RATE = 10, 4, 0.05
NEEDS = {
    "rpi4": QEMU,
    "rpi5": QEMU,
    "jetson-orin": QEMU,
    "snapdragon-dsp": "qemu-hexagon",
    "phone-arm64": "adb",
    "wasm32": "node",
    "wasm32-threads": "node",
}
THREADS = {"wasm32-threads": "3"}
MACHO_64_MAGIC, MACHO_ARM64, MACHO_EXECUTE = 0xFEEDFACF, 0x0100000C, 2


@pytest.fixture(name="data", scope="module")
def ten_batches() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((STEPS, BATCH, 12, 12, 3)).astype(np.float32)
    return {"x": x, "labels": rng.integers(0, 5, (STEPS, BATCH))}


@pytest.fixture(name="losses", scope="module")
def oracle_losses(data: dict[str, np.ndarray]) -> list[float]:
    program, _ = compile_for(convolutional_graph(), load_device("host"))
    state = {name: param.data.copy() for name, param in program.params.items()}
    graph = program.entries["train"].graph
    rate = np.asarray(RATE, np.float32)
    steps = ({name: array[i] for name, array in data.items()} | {"lr": rate} for i in range(STEPS))
    return [float(run(graph, inputs, state)["loss"]) for inputs in steps]


def build(device: str, folder: Path) -> Artifact:
    program, backend = compile_for(convolutional_graph(), load_device(device))
    return write_artifact(program, backend, folder / "artifact")


def train(board_name: str, artifact: Artifact, data: Path, folder: Path) -> Iterator[float]:
    """Train on a board of the inventory; yield the losses that the program prints."""
    threads = THREADS.get(artifact.device, "1")
    arguments = ["train", "--weights", "weights", "--data", "data", "--threads", threads]
    job = Job(
        artifact.executable,
        args=(*arguments, "--steps", str(STEPS), "--lr", str(RATE)),
        inputs={"weights": artifact.weights, "data": data},
    )
    with connect(board_for(board_name, load_boards([BUILT_IN]))) as transport:
        printed = run_job(transport, job, folder).run.stdout
    for line in map(json.loads, printed.splitlines()):
        if "loss" in line:
            yield line["loss"]


@pytest.mark.parametrize("device", ["host", *NEEDS])
def test_each_kind_of_board_trains_with_the_same_ten_losses(
    device: str, data: dict[str, np.ndarray], losses: list[float], tmp_path: Path
) -> None:
    if shutil.which(NEEDS.get(device, "sh")) is None:
        pytest.skip(f"{NEEDS[device]} is not installed (./bazelw; apt-get install adb nodejs)")
    save_file(as_rows(data), tmp_path / "data")

    found = list(train(device, build(device, tmp_path), tmp_path / "data", tmp_path))

    np.testing.assert_allclose(found, losses, rtol=1e-5)
    assert losses[-1] < losses[0]


@pytest.mark.skipif(shutil.which("qemu-hexagon") is None, reason="qemu-hexagon is not installed")
def test_packets_of_a_dsp_step_are_deterministic(
    data: dict[str, np.ndarray], tmp_path: Path
) -> None:
    artifact = build("snapdragon-dsp", tmp_path)
    save_file(as_rows(data), tmp_path / "data")
    files = ["--weights", str(artifact.weights), "--data", str(tmp_path / "data")]
    command = [str(artifact.executable), "train", *files, "--steps", "3", "--lr", "0.05"]

    counted = count_twice([*command, "--threads", "1"], marks=3, arch="hexagon")

    assert all(10_000 < packets < counted.total for packets in counted.regions)
    assert max(counted.regions) < 1.2 * min(counted.regions)


def test_apple_m1_program_is_an_arm64_macho(tmp_path: Path) -> None:
    artifact = build("apple-m1", tmp_path)
    executable = artifact.executable.read_bytes()

    magic, cpu, _, kind = struct.unpack_from("<IIII", executable)
    assert (magic, cpu, kind) == (MACHO_64_MAGIC, MACHO_ARM64, MACHO_EXECUTE)
    assert b"/usr/lib/libSystem.B.dylib" in executable
    assert b"small_cnn" in executable
    app = link_module(artifact, tmp_path).read_bytes()
    assert struct.unpack_from("<II", app) == (MACHO_64_MAGIC, MACHO_ARM64)


def link_module(artifact: Artifact, folder: Path) -> Path:
    """Build an app that imports the artifact's headers as a module and links its library."""
    source, app = folder / "app.m", folder / "app"
    source.write_text(
        "@import PockEngine_small_cnn;\n"
        "int main(void) {\n"
        "    char message[PE_MESSAGE_BYTES];\n"
        "    return !pe_open(&pe_program_small_cnn, 1, message);\n"
        "}\n"
    )
    toolchain = find_toolchain(load_device("apple-m1"))
    (library,) = artifact.folder.glob("lib/*.a")
    command = [*toolchain.command, "-fmodules", f"-fmodules-cache-path={folder / 'modules'}"]
    command += [f"-I{artifact.folder / 'include'}", str(source), str(library), "-o", str(app)]
    subprocess.run(command, check=True, env=toolchain.environment)
    return app
