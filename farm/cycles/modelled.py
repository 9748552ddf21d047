"""Modelled time of marked regions on a board that is not connected.

The program runs under QEMU's user mode; plugin/ executes each instruction on a model of the board's
core as it goes: an out-of-order pipeline with the latencies and pipes of Arm's guides, caches with
a prefetcher, DRAM of one latency and bandwidth, and a branch predictor. One thread runs at a time
on one core. The kernel's own time is not modelled. Every figure is modelled, not measured: quote
it with its error, which is that of calibration.toml's held-out nets.
"""

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.cycles.calibration import held_out_error
from pockengine.farm.cycles.core import THUMB, ModelledBoard, modelled_board, modelled_devices
from pockengine.farm.references.instructions import GUEST, GuestSystem, Observer, count

PLUGIN = Path(__file__).with_name("plugin")
SHARED = ("branches.c", "core.h", "numbers.c", "observe.c")
TIMEOUT = 3600.0


@dataclass(frozen=True)
class Cycles:
    """Cycles of a region, by the cause of waiting; their sum is its time.

    `core`: operands and pipes. `cache`: levels after the first. `dram`: memory, including lines in
    flight. `branch`: mispredictions. `fetch`: instruction fetch.
    """

    core: int
    cache: int
    dram: int
    branch: int
    fetch: int

    @property
    def total(self) -> int:
        """The sum of all causes."""
        return self.core + self.cache + self.dram + self.branch + self.fetch


@dataclass(frozen=True)
class Modelled:
    """A region's modelled time, and the model's error on held-out nets.

    `error` is the mean absolute relative error on the board's held-out nets; None without any.
    """

    device: str
    instructions: int
    cycles: Cycles
    milliseconds: float
    error: float | None


def modelled(device: str, instructions: int, cycles: Cycles) -> Modelled:
    """Return the time of a region's cycles on a device; FarmError if it has no model."""
    milliseconds = modelled_board(device).milliseconds(cycles.total)
    return Modelled(
        device, instructions, cycles, milliseconds=milliseconds, error=held_out_error(device)
    )


def model_regions(
    device: str,
    command: Sequence[str],
    marks: int | None = None,
    *,
    root: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> tuple[Modelled, ...]:
    """Run an aarch64 program and return the modelled time of each marked region.

    `marks` is as in `instructions.count`, `root` and `environment` as in its `GuestSystem`. The
    first region starts with empty caches. FarmError after `timeout` seconds.
    """
    board = modelled_board(device)
    emulator = load_device(device).emulator
    with tempfile.TemporaryDirectory(prefix="pockengine-cycles-") as folder:
        counted = count(
            command, marks, system=GuestSystem(root, environment), timeout=timeout, arch=GUEST,
            cpu=None if emulator is None else emulator.cpu,
            observer=observer_of(board, Path(folder)),
        )  # fmt: skip
    cycles = read_cycles(counted.observed)
    if len(cycles) != len(counted.regions):
        raise FarmError(f"{len(counted.regions)} regions have {len(cycles)} lines of cycles")
    return tuple(modelled(device, *pair) for pair in zip(counted.regions, cycles, strict=True))


def model_digest(device: str) -> bytes:
    """Return the hash of a device's cycle model; empty if it has none."""
    if device not in (*modelled_devices(), *modelled_devices(THUMB)):
        return b""
    board = modelled_board(device)
    digest = hashlib.sha256("\n".join(board.lines).encode())
    for source in sources_of(board):
        digest.update(source.read_bytes())
    return digest.digest()


def what_it_means(device: str) -> str:
    """Explain what a modelled time is, with its error."""
    error = held_out_error(device)
    known = "has no held-out net" if error is None else f"is {error:.0%} off on held-out nets"
    return f"Modelled for one core of {device}, not measured; the model {known}."


def observer_of(board: ModelledBoard, folder: Path) -> Observer:
    """Return the model of a board; its numbers are written into `folder`, which must persist."""
    numbers = folder / f"{board.device}.core"
    partial = numbers.with_suffix(f".{os.getpid()}")
    partial.write_text("\n".join(board.lines) + "\n")
    os.replace(partial, numbers)
    return Observer(sources_of(board), {"core": numbers})


def sources_of(board: ModelledBoard) -> tuple[Path, ...]:
    """Return the sources of a board's model: those of its kind, and those of all."""
    own = sorted((PLUGIN / board.kind).iterdir())
    return (*(PLUGIN / name for name in SHARED), *own)


def read_cycles(lines: Sequence[str]) -> tuple[Cycles, ...]:
    """Parse the cycles of each region from the model's lines in a report."""
    try:
        rows = [line.split()[1:] for line in lines if line.startswith("cycles ")]
        return tuple(Cycles(*map(int, row)) for row in rows)
    except (TypeError, ValueError):
        raise FarmError(f"the model's report is damaged: {lines[:3]}") from None
