"""Compare with TinyEngine: a step of MCUNet with its 49 KB scheme on an emulated STM32F746.

    git clone --recurse-submodules https://github.com/mit-han-lab/tinyengine DIR git -C DIR checkout
    47bb283ce9d7e33c6fea623b3792726046dc9cfa bazel run //studies/tinyengine -- --source DIR

Both have the net at 128x128 with 10 classes and train the same: 21 biases, a part of three weights,
the classifier. Theirs is their published generated code with their kernels, built by our compiler
at -O3 -ffast-math; its backward pass is in f32, ours in int8. Memory and flash are those of the
linked firmware, stack included. Theirs has its published weights, ours random ones: these hardly
change the count.
"""

import json
import os
import subprocess
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
from rich.table import Table

from pockengine import PockEngineError
from pockengine.backends.artifact import write_artifact
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.backends.registry import backend_for
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import DType
from pockengine.compiler.options import Training
from pockengine.devices import Device, load_device
from pockengine.errors import BuildError
from pockengine.farm.boards.board import BUILT_IN, board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.firmware.link import Firmware, link_files
from pockengine.farm.firmware.run import Steps, train_firmware
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.transports.transport import Transport
from pockengine.models.tiny_training import convert, published
from pockengine.studies.tiny_training.study import SIZE, build_net, int8_graph, net_graph
from pockengine.terminal import PlainConsole

DEVICE, NET, BUDGET_KB, CLASSES = "stm32f746", "mcunet-5fps", 49, 10
HERE = Path(__file__).parent

GENERATED = Path("tests/examples/assets/tiny_training/codegen.zip")
KERNELS = ("fp_requantize_op/*.c", "fp_backward_op/*.c")
FORWARD = ("avgpooling", "arm_nn_mat_mult_kernel3_input3_s8_s16")
"""Files of int_forward_op that the generated code calls."""

INCLUDES = (
    "TinyEngine/include",
    "TinyEngine/third_party/CMSIS/CMSIS/NN/Include",
    "TinyEngine/third_party/CMSIS/CMSIS/DSP/Include",
    "TinyEngine/third_party/CMSIS/CMSIS/Core/Include",
)
FLAGS = (
    *("-std=gnu11", "-O3", "-ffast-math", "-g0", "-w", "-Wno-incompatible-pointer-types"),
    *("-Wno-implicit-function-declaration", "-Wno-int-conversion"),
    *("-ffunction-sections", "-fdata-sections", "-fno-pic", "-fno-stack-protector"),
    *("-fno-unwind-tables", "-fno-asynchronous-unwind-tables", "-fomit-frame-pointer"),
    *("-DARM_MATH_CM7", "-DARM_MATH_DSP"),
)
HEADERS = "thumb-linux-musleabihf"
"""The target whose C library headers their sources use; they call none of its functions."""


@dataclass(frozen=True)
class EngineRow:
    """Instructions of a step, and the firmware's bytes."""

    engine: str
    instructions: int
    memory_bytes: int
    flash_bytes: int


def build_theirs(source: Path, device: Device, folder: Path) -> Firmware:
    """Compile their generated code and kernels; BuildError names files missing from the clone."""
    missing = [name for name in (GENERATED, *INCLUDES) if not (source / name).exists()]
    if missing:
        raise BuildError(f"{source} has no {missing[0]}; clone tinyengine with its submodules")
    with zipfile.ZipFile(source / GENERATED) as archive:
        archive.extractall(folder)
    kernels = source / "TinyEngine" / "src" / "kernels"
    files = [path for pattern in KERNELS for path in sorted(kernels.glob(pattern))]
    files += [kernels / "int_forward_op" / f"{name}.c" for name in FORWARD]
    files += sorted((folder / "codegen" / "Source").glob("*.c"))
    includes = [folder / "codegen" / "Include", *(source / name for name in INCLUDES)]
    objects = [_compile(path, includes, device, folder) for path in files]
    return link_files("TinyEngine", device, [HERE / "step.c", *objects], [], folder)


def _compile(source: Path, includes: list[Path], device: Device, folder: Path) -> Path:
    toolchain, out = find_toolchain(device), folder / f"{source.stem}.o"
    command = [HEADERS if part == device.toolchain.target else part for part in toolchain.command]
    command += [*FLAGS, *(f"-I{place}" for place in includes), "-c", str(source), "-o", str(out)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=toolchain.environment, check=False
    )
    if done.returncode:
        raise BuildError(f"{source.name} does not build:\n{done.stderr[:2000]}")
    return out


def measure_theirs(source: Path, board: Transport, device: Device, folder: Path) -> EngineRow:
    """Count a step of theirs; the first is as long as the others."""
    firmware = build_theirs(source, device, folder)
    out = run_job(board, Job(firmware.path, outputs=("out",)), folder).outputs["out"]
    counts = np.frombuffer(out.read_bytes(), np.uint64)
    return EngineRow(
        "TinyEngine", int(np.median(counts)), firmware.memory_bytes, firmware.flash_bytes
    )


def measure_ours(board: Transport, device: Device, folder: Path) -> EngineRow:
    """Compile the published scheme, and count a step."""
    graph = int8_graph(net_graph(build_net(NET), SIZE))
    scheme = next(s for s in published() if (s.net, s.budget_kb) == (NET, BUDGET_KB))
    backend = backend_for(device)
    training = Training(convert(scheme.config, graph, str(scheme)))
    program = compile_program(graph, training, target=backend.target())
    artifact = write_artifact(program, backend, folder / "artifact")
    random = np.random.default_rng(0)
    picture = graph.input("x")
    target = next(value for value in graph.inputs if value.dtype is not DType.I8)
    batches: list[dict[str, np.ndarray]] = [
        {
            picture.name: random.integers(-128, 128, picture.shape).astype(np.int8),
            target.name: random.integers(0, CLASSES, target.shape),
        }
        for _ in range(3)
    ]
    run = train_firmware(board, artifact, Steps(batches, 0.01), folder)
    count = int(np.median(run.instructions))
    return EngineRow("pockengine", count, run.firmware.memory_bytes, run.firmware.flash_bytes)


@click.command()
@click.option(
    "--source",
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A clone of TinyEngine.",
)
@click.option("--json", "out", type=click.Path(path_type=Path), help="For a line of each engine.")
def main(source: Path, out: Path | None) -> None:
    """Print instructions, memory and flash of both."""
    device, base = load_device(DEVICE), Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    try:
        with (
            TemporaryDirectory() as folder,
            connect(board_for(DEVICE, load_boards([BUILT_IN]))) as board,
        ):
            places = [Path(folder, name) for name in ("theirs", "ours")]
            for place in places:
                place.mkdir()
            rows = [
                measure_theirs(base / source, board, device, places[0]),
                measure_ours(board, device, places[1]),
            ]
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error
    table = Table()
    for column in ("engine", "instructions a step", "memory, bytes", "flash, bytes"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for row in rows:
        table.add_row(row.engine, *(f"{value:,}" for value in list(asdict(row).values())[1:]))
    PlainConsole(100).print(table)
    if out is not None:
        (base / out).write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))


if __name__ == "__main__":
    main()
