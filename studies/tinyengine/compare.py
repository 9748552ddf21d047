"""Compare with TinyEngine: a step of MCUNet with its 49 KB scheme on an emulated STM32F746.

    git clone --recurse-submodules https://github.com/mit-han-lab/tinyengine DIR
    git -C DIR checkout 47bb283ce9d7e33c6fea623b3792726046dc9cfa
    bazel run //studies/tinyengine -- --source DIR

Both have the net at 128x128 with 10 classes and train the same: 21 biases, a part of three weights,
the classifier. Theirs is their published generated code with their kernels, built by our compiler
at -O3 -ffast-math; its backward pass is in f32, ours in int8. Memory and flash are those of the
linked firmware, stack included. Theirs has its published weights, ours random ones: these hardly
change the count. Milliseconds are modelled; beside them stand public times of the board, also of a
net of CMSIS-NN, whose kernels the clone contains: the model's calibration.
"""

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
from rich.table import Table

from pockengine import PockEngineError
from pockengine.backends.artifact import write_artifact
from pockengine.backends.registry import backend_for
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import DType
from pockengine.compiler.options import Training
from pockengine.devices import Device, load_device
from pockengine.farm.boards.board import BUILT_IN, board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.cycles.calibration import Figure, figures
from pockengine.farm.cycles.firmware import model_firmware
from pockengine.farm.firmware.run import Steps, train_firmware, write_first_steps
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.transports.transport import Transport
from pockengine.models.tiny_training import convert, published
from pockengine.studies.tiny_training.study import SIZE, build_net, int8_graph, net_graph
from pockengine.studies.tinyengine.cifar import model_cifar
from pockengine.studies.tinyengine.theirs import build_theirs
from pockengine.terminal import PlainConsole

DEVICE, NET, BUDGET_KB, CLASSES = "stm32f746", "mcunet-5fps", 49, 10


@dataclass(frozen=True)
class EngineRow:
    """Instructions and modelled milliseconds of a step, and the firmware's bytes."""

    engine: str
    instructions: int
    modelled_ms: float
    memory_bytes: int
    flash_bytes: int


def measure_theirs(source: Path, board: Transport, device: Device, folder: Path) -> EngineRow:
    """Count a step of theirs; the first is as long as the others."""
    firmware = build_theirs(source, device, folder)
    out = run_job(board, Job(firmware.path, outputs=("out",)), folder).outputs["out"]
    counts = np.frombuffer(out.read_bytes(), np.uint64)
    modelled = model_firmware(device.name, firmware.path, folder)[-1]
    sizes = firmware.memory_bytes, firmware.flash_bytes
    return EngineRow("TinyEngine", int(np.median(counts)), modelled.milliseconds, *sizes)


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
    count, sizes = int(np.median(run.instructions)), run.firmware
    write_first_steps(run.firmware, 2, folder / "data")
    modelled = model_firmware(device.name, run.firmware.path, folder)[-1]
    return EngineRow(
        "pockengine", count, modelled.milliseconds, sizes.memory_bytes, sizes.flash_bytes
    )


def calibrated(step_ms: float, cifar_ms: float) -> list[Figure]:
    """Return the public figures of the board with what was modelled now."""
    step, cifar = (figure for figure in figures() if figure.device == DEVICE)
    return [replace(step, modelled_ms=step_ms), replace(cifar, modelled_ms=cifar_ms)]


@click.command()
@click.option(
    "--source",
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A clone of TinyEngine.",
)
@click.option("--json", "out", type=click.Path(path_type=Path), help="For a line of each engine.")
def main(source: Path, out: Path | None) -> None:
    """Print instructions, modelled time, memory and flash of both, and the model's calibration."""
    device, base = load_device(DEVICE), Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    try:
        with (
            TemporaryDirectory() as folder,
            connect(board_for(DEVICE, load_boards([BUILT_IN]))) as board,
        ):
            places = [Path(folder, name) for name in ("theirs", "ours", "cifar")]
            for place in places:
                place.mkdir()
            rows = [
                measure_theirs(base / source, board, device, places[0]),
                measure_ours(board, device, places[1]),
            ]
            cifar = model_cifar(base / source, device, places[2])
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error
    table = Table()
    columns = ("instructions a step", "modelled ms", "memory, bytes", "flash, bytes")
    for column in ("engine", *columns):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for row in rows:
        sizes = f"{row.memory_bytes:,}", f"{row.flash_bytes:,}"
        table.add_row(row.engine, f"{row.instructions:,}", f"{row.modelled_ms:.1f}", *sizes)
    console = PlainConsole(100)
    console.print(table)
    for figure in calibrated(rows[0].modelled_ms, cifar.milliseconds):
        times = f"{figure.modelled_ms:.1f} ms modelled, {figure.measured_ms:g} ms measured"
        console.print(f"{figure.what}: {times} ({figure.error:+.0%}); {figure.source}")
    if out is not None:
        (base / out).write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))


if __name__ == "__main__":
    main()
