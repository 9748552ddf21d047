"""Instructions of int8 and f32 predictions and training steps on an emulated Arm board.

python -m pockengine.tests.backends.c.int8_counts rpi4 prints a line of JSON for each scheme and
type: MobileNetV2 of width 0.35 at 96x96, batch 4, the bench's photographs, and the modelled time on
boards that have a cycle model. For int8 the model is calibrated on the photographs; its inputs stay
f32.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
from safetensors.numpy import save_file

from pockengine.api import compile as compile_model
from pockengine.compiled import Compiled
from pockengine.compiler.optim import Sgd
from pockengine.compiler.quantize.int8 import Int8
from pockengine.devices import Device, load_device
from pockengine.farm.bench.case import Case, make_case
from pockengine.farm.bench.run import train_arguments, write_rows
from pockengine.farm.cycles.core import modelled_devices
from pockengine.farm.cycles.modelled import model_regions
from pockengine.farm.references.instructions import count_twice
from pockengine.farm.references.job import JobData

Figures = dict[str, float]
"""A figure by its metric."""

MODEL, BATCH, STEPS = "mobilenet_v2-0.35-96", 4, 2
SCHEMES = ("full", "bias-only", "sparse")


def counts(device: Device, case: Case, scheme: str, int8: bool) -> Iterator[dict[str, object]]:
    """Compile for one scheme and type; yield the instructions of a step and of a prediction."""
    data = case.for_scheme(scheme)
    pictures = data.images.reshape(-1, *data.images.shape[2:])
    name = case.graph.inputs[0].name
    optimizer = Sgd(momentum=data.job.momentum, weight_decay=data.job.weight_decay)
    with tempfile.TemporaryDirectory(prefix="pockengine-int8-") as folder:
        compiled = compile_model(
            case.graph,
            (),
            optimizer=optimizer,
            scheme=case.scheme(scheme),
            device=device.name,
            quantize=Int8({name: pictures}) if int8 else None,
            folder=Path(folder) / "artifact",
        )
        rows = Path(folder) / "rows.safetensors"
        write_rows(compiled.artifact, data, rows)
        one = Path(folder) / "pictures.safetensors"
        save_file({name: np.ascontiguousarray(pictures[:BATCH])}, one)
        found = {
            "step": _step(device, compiled, data, rows),
            "prediction": _prediction(device, compiled, one, Path(folder) / "out"),
        }
    for what, figures in found.items():
        yield {
            "device": device.name,
            "scheme": Path(scheme).stem,
            "type": "int8" if int8 else "f32",
            "what": what,
            **figures,
            "arena_bytes": compiled.artifact.arena_bytes,
        }


def _step(device: Device, compiled: Compiled, data: JobData, rows: Path) -> Figures:
    arguments = train_arguments(data, str(compiled.artifact.weights), str(rows), threads=1)
    return _count(device, compiled, arguments, data.steps)


def _prediction(device: Device, compiled: Compiled, rows: Path, out: Path) -> Figures:
    files = ["--weights", str(compiled.artifact.weights), "--data", str(rows)]
    return _count(device, compiled, ["predict", *files, "--output", str(out), "--threads", "1"], 1)


def _count(device: Device, compiled: Compiled, arguments: list[str], marks: int) -> Figures:
    """Count the instructions of one thread and model their time; the last region is typical."""
    assert device.emulator is not None
    command = [str(compiled.artifact.executable), *arguments]
    cpu = device.emulator.cpu
    figures: Figures = {
        "guest_instructions": count_twice(command, marks, arch=device.cpu.arch, cpu=cpu).regions[-1]
    }
    if device.name in modelled_devices():
        figures["modelled_ms"] = model_regions(device.name, command, marks)[-1].milliseconds
    return figures


@click.command()
@click.argument("device")
@click.option("--scheme", "schemes", multiple=True, default=SCHEMES)
def main(device: str, schemes: tuple[str, ...]) -> None:
    """Count on DEVICE, an emulated Arm board."""
    case = make_case(MODEL, BATCH, STEPS)
    for scheme in schemes:
        for int8 in (False, True):
            for found in counts(load_device(device), case, scheme, int8):
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
