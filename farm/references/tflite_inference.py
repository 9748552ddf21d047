"""Guest instructions of TFLite's own inference of a job's net, in f32 and int8, under emulation.

This machine's TensorFlow converts the net; tflite-runtime's aarch64 wheel predicts the first batch
on one thread, with the delegate that it takes by itself. A prediction that is not the right one has
no figure.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pockengine.devices import Device, load_device
from pockengine.errors import FarmError
from pockengine.farm.progress import step
from pockengine.farm.references.engines import find_engine
from pockengine.farm.references.guest import GuestFigure
from pockengine.farm.references.guest_install import GuestPython, install_guest_python
from pockengine.farm.references.instructions import GUEST, GuestSystem, count, emulator_version
from pockengine.farm.references.job import JobData, write_job
from pockengine.farm.references.tflite_names import PICTURES, TYPES, file_of
from pockengine.farm.references.worker import run_module, why_missing

ENGINE = "tflite"
COUNTED = 3
TOLERANCES = {"f32": 1e-4, "int8": 0.1}
"""Of the largest output in f32: int8 rounds every activation, f32 none."""

GUEST_MODULES = ("marks", "tflite_guest")


def measure_inference(
    device: str, data: JobData, expected: NDArray[np.floating[Any]]
) -> dict[str, GuestFigure]:
    """Return the counts of a prediction of the job's first batch by type.

    `expected` are its right outputs [N, classes]. FarmError for a board that is not emulated,
    without TensorFlow on this machine, where tflite-runtime cannot be installed, and for other
    outputs.
    """
    board = load_device(device)
    if board.cpu.arch != GUEST or board.emulator is None:
        raise FarmError(f"TFLite is emulated for {GUEST} boards alone, not for {device}")
    reason = why_missing(find_engine("tf-graph"))
    if reason:
        raise FarmError(f"{reason}, which converts nets for TFLite")
    guest = install_guest_python("tflite")
    with tempfile.TemporaryDirectory(prefix="pockengine-tflite-") as name:
        folder = Path(name)
        write_job(folder, data)
        with step("TensorFlow converts the net to TFLite, in f32 and int8"):
            run_module("tflite_files", [str(folder)])
        return {
            dtype: _count(guest, board, dtype, folder=folder, expected=expected) for dtype in TYPES
        }


def _count(
    guest: GuestPython, board: Device, dtype: str, folder: Path, expected: NDArray[np.floating[Any]]
) -> GuestFigure:
    """Count the inferences of a file in the folder."""
    assert board.emulator is not None
    command, system = guest_command(guest, folder, dtype, COUNTED)
    with step(f"aarch64 TFLite's {dtype} inference under emulation") as progress:
        counted = count(command, COUNTED, system=system, cpu=board.emulator.cpu)
        found = json.loads(counted.stdout)
        error = _checked(dtype, np.array(found["outputs"]), expected)
        progress.detail = f"outputs within {error:.1e} of the oracle's"
    version = f"tflite-runtime {found['version']}"
    return GuestFigure(
        ENGINE, version, emulator_version(), counts=counted.regions, max_rel_error=error
    )


def guest_command(
    guest: GuestPython, folder: Path, dtype: str, times: int
) -> tuple[list[str], GuestSystem]:
    """Return the command that runs a folder's inference `times` times, and what it runs on.

    The folder has the file and the picture; the imports of the guest are copied into it.
    """
    sources = _stage_sources(folder / "sources")
    module = "pockengine.farm.references.tflite_guest"
    files = [str(folder / file_of(dtype)), str(folder / PICTURES)]
    environment = {
        "PYTHONPATH": os.pathsep.join([str(sources), str(guest.packages)]),
        "PATH": os.environ.get("PATH", os.defpath),
    }
    command = [str(guest.python), "-P", "-m", module, *files, str(times)]
    return command, GuestSystem(guest.root, environment)


def _checked(dtype: str, found: NDArray[np.floating[Any]], expected: NDArray[np.floating]) -> float:
    """Return how far outputs are from the right ones; FarmError if it is too far."""
    if found.shape != expected.shape:
        raise FarmError(f"TFLite predicts {list(found.shape)} numbers, not {list(expected.shape)}")
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    if not error <= TOLERANCES[dtype]:
        raise FarmError(
            f"TFLite in {dtype} predicts something else than the oracle, off by {error:.1e} where "
            f"{TOLERANCES[dtype]:g} is allowed; its figure would mean nothing"
        )
    return error


def _stage_sources(folder: Path) -> Path:
    """Copy the emulated Python's imports into a package without the project's own."""
    place = folder / "pockengine" / "farm" / "references"
    place.mkdir(parents=True, exist_ok=True)
    for module in GUEST_MODULES:
        shutil.copyfile(Path(__file__).with_name(f"{module}.py"), place / f"{module}.py")
    return folder
