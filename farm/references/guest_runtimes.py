"""Guest instructions of our step in an aarch64 runtime: ONNX Runtime, TFLite, TVM, by their wheels.

The same worker as on this machine opens the artifact, which was compiled here for the board, in an
emulated Python. Each step is a counted region, Python's part of it included.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.progress import step
from pockengine.farm.references.engines import find_runtime
from pockengine.farm.references.guest import (
    COUNTED_STEPS,
    GuestFigure,
    checked_part,
    guest_worker,
    run_engine,
)
from pockengine.farm.references.guest_install import install_guest_python
from pockengine.farm.references.instructions import GUEST, emulator_version, read_report
from pockengine.farm.references.job import JobData, write_job

STAGED = ("backends", "compiler", "devices", "farm/references", "models")
SOURCES = (".py", ".toml")


def measure_guest_runtime(
    backend: str, device: str, artifact: Path, data: JobData, losses: Sequence[float]
) -> GuestFigure:
    """Count an artifact's steps in its runtime; FarmError unless its losses are PyTorch's."""
    runtime, board = find_runtime(backend), load_device(device)
    if board.cpu.arch != GUEST or board.emulator is None:
        raise FarmError(f"runtimes are emulated for {GUEST} boards alone, not for {device}")
    cpu = board.emulator.cpu
    guest = install_guest_python(backend)
    short, expected = checked_part(data, losses)
    with tempfile.TemporaryDirectory(prefix="pockengine-guest-") as name:
        folder = Path(name)
        write_job(folder / "job", short)
        _stage_package(folder / "sources")
        report = folder / "report"
        with (
            guest_worker(
                guest, runtime.worker, folder / "sources", report=report, cpu=cpu
            ) as worker,
            step(f"our step in aarch64 {backend} under emulation") as progress,
        ):
            error = run_engine(worker, folder / "job", str(artifact), expected)
            progress.detail = f"losses within {error:.1e} of PyTorch's"
        regions, _ = read_report(report)
        if len(regions) != COUNTED_STEPS:
            raise FarmError(
                f"the emulated {backend} marked {len(regions)} of {COUNTED_STEPS} steps"
            )
        return GuestFigure(
            runtime.engine, worker.version, emulator_version(), counts=regions, max_rel_error=error
        )


def _stage_package(folder: Path) -> None:
    """Copy the packages that sessions import, without others of this machine."""
    project = Path(__file__).parents[2]
    files = [file for file in project.glob("*.py") if file.stem != "setup"]
    for part in STAGED:
        files += [file for file in (project / part).rglob("*") if file.suffix in SOURCES]
    for file in files:
        place = folder / "pockengine" / file.relative_to(project)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    (folder / "pockengine" / "farm" / "__init__.py").touch()
