"""Modelled time of a firmware's marked steps on a microcontroller that is not connected.

The firmware runs on QEMU's board, whose addresses and memory are those of a real one; the model of
plugin/thumb/ executes each instruction: an in-order pipeline that starts up to two a cycle, both
caches, flash and RAM behind one bus. Every figure is modelled, not measured.
"""

import subprocess
import tempfile
from pathlib import Path

from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.cycles.core import THUMB, modelled_board
from pockengine.farm.cycles.modelled import TIMEOUT, Modelled, modelled, observer_of, read_cycles
from pockengine.farm.references.instructions import observed, plugin_argument, read_report

BOARD = ("-nographic", "-monitor", "none", "-serial", "none", "-icount", "shift=0")
FILES = ("-semihosting-config", "enable=on,target=native")


def model_firmware(
    device: str, firmware: Path, folder: Path, timeout: float = TIMEOUT
) -> tuple[Modelled, ...]:
    """Run a firmware in `folder`, which has the files it reads, and return each marked step's time.

    The first step starts with empty caches. FarmError if the device has no model, the firmware
    fails or marks no step, or after `timeout` seconds.
    """
    board, emulator = modelled_board(device), load_device(device).emulator
    if board.kind != THUMB or emulator is None:
        raise FarmError(f"{device} runs programs, no firmware; model them with model_regions")
    if not firmware.is_file():
        raise FarmError(f"no firmware {firmware}; give the file that is linked for the board")
    with tempfile.TemporaryDirectory(prefix="pockengine-cycles-") as name:
        report = Path(name, "report")
        plugin = plugin_argument(report, observer_of(board, Path(name)))
        command = [emulator.program, "-M", emulator.machine, *BOARD, *FILES, "-plugin", plugin]
        command += ["-kernel", str(firmware.absolute())]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace",
                timeout=timeout, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise FarmError(
                f"{emulator.program} is not installed; run: apt-get install qemu-system-arm"
            ) from None
        except subprocess.TimeoutExpired as expired:
            raise FarmError(f"{firmware.name} ran over {timeout:g} s") from expired
        if done.returncode != 0:
            raise FarmError(f"{firmware.name} ended with {done.returncode}: {done.stderr[-800:]}")
        (regions, _), lines = read_report(report), observed(report)
    cycles = read_cycles(lines)
    if not regions or len(cycles) != len(regions):
        raise FarmError(f"{firmware.name}: {len(regions)} marked steps, {len(cycles)} modelled")
    return tuple(modelled(device, *pair) for pair in zip(regions, cycles, strict=True))
