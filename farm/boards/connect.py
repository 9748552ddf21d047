"""Open a board of any kind: the only code that maps places to transports."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pockengine.backends.native.runtime_files import NODE_SCRIPT
from pockengine.devices import Device, load_device
from pockengine.errors import FarmError
from pockengine.farm.boards.board import (
    AdbPhone,
    Board,
    Emulated,
    EmulatedPhone,
    Local,
    Remote,
    UserEmulated,
)
from pockengine.farm.transports.adb import AdbTransport
from pockengine.farm.transports.adb_client import AdbAddress
from pockengine.farm.transports.emulated import Guest, boot, booting
from pockengine.farm.transports.local import LocalTransport
from pockengine.farm.transports.loopback import Loopback
from pockengine.farm.transports.phone import Phone
from pockengine.farm.transports.powered import BOOT_TIMEOUT_S, PoweredTransport, wait_to_connect
from pockengine.farm.transports.ssh import SshAddress
from pockengine.farm.transports.supply import Shelf
from pockengine.farm.transports.transport import PowerAction, Transport


@contextmanager
def connect(board: Board) -> Iterator[Transport]:
    """Yield an open transport to the board; close it afterwards (an emulated board powers off)."""
    place = board.place
    if isinstance(place, Emulated):
        with boot(board.name, guest_of(board, place)) as emulated:
            yield emulated
    elif isinstance(place, UserEmulated):
        with closing(Loopback(board.name)) as host:
            host.power("on")
            with closing(PoweredTransport(host, launcher_of(board))) as processor:
                yield processor
    elif isinstance(place, EmulatedPhone):
        with closing(Phone(board.name)) as emulated_phone:
            yield emulated_phone.open(launcher_of(board))
    elif isinstance(place, AdbPhone):
        with closing(AdbTransport(AdbAddress(board.name, place.serial, place.workdir))) as phone:
            yield phone
    elif isinstance(place, Local):
        with closing(LocalTransport(board.name)) as local:
            yield local
    else:
        with (
            closing(shelf_of(board.name, place)) as shelf,
            closing(PoweredTransport(shelf, place.launcher)) as remote,
        ):
            yield remote


def opening(board: Board) -> str:
    """Describe what `connect` will do."""
    return booting() if isinstance(board.place, Emulated) else "connecting"


def has_power(board: Board) -> bool:
    """Whether a command switches the board's power."""
    return isinstance(board.place, Remote) and bool(board.place.power)


def switch(board: Board, action: PowerAction) -> None:
    """Switch the power of an unconnected board; do nothing without a power command.

    An emulated board needs none: each connection starts it.
    """
    if isinstance(board.place, Remote) and has_power(board):
        with closing(shelf_of(board.name, board.place)) as shelf:
            shelf.power(action)
            if action != "off":
                wait_to_connect(shelf.address, BOOT_TIMEOUT_S).close()


def shelf_of(name: str, place: Remote) -> Shelf:
    """Return power, console and address of a physical machine."""
    address = SshAddress(
        board=name,
        host=place.host,
        port=place.port,
        user=place.user,
        key_file=Path(place.key_file).expanduser(),
        host_key=place.host_key,
        workdir=place.workdir,
    )
    return Shelf(address, place.power, place.console)


def launcher_of(board: Board) -> tuple[str, ...]:
    """Return the command that emulates a device's processor, or a board that runs firmware.

    FarmError if it is missing.
    """
    device = _emulated_device(board)
    emulator = device.emulator
    assert emulator is not None
    if shutil.which(emulator.program) is None:
        package = emulator.program if emulator.machine else "qemu-user"
        package = "nodejs" if emulator.program == NODE else package
        raise FarmError(
            f"{emulator.program} is missing; install it with: apt-get install {package}"
        )
    if emulator.machine:
        return (emulator.program, "-M", emulator.machine, *FIRMWARE)
    if emulator.program == NODE:
        return (NODE, "--no-warnings", str(NODE_SCRIPT))
    return (emulator.program, "-cpu", emulator.cpu)


def guest_of(board: Board, place: Emulated) -> Guest:
    """Return the QEMU machine of the device file."""
    device = _emulated_device(board)
    emulator = device.emulator
    assert emulator is not None
    return Guest(
        machine=emulator.machine,
        cpu=emulator.cpu,
        cores=min(device.cpu.cores, MOST_CORES),
        memory_mb=emulator.memory_bytes >> 20,
        disk_mb=place.disk_mb,
    )


NODE = "node"

# QEMU for firmware: file access limited to its own folder, and a clock that counts instructions.
FIRMWARE = (
    *("-nographic", "-monitor", "none", "-serial", "none"),
    *("-semihosting-config", "enable=on,target=native"),
    *("-icount", "shift=0", "-kernel"),
)

# More emulated cores than this only wait for each other on typical hosts.
MOST_CORES = 4


def _emulated_device(board: Board) -> Device:
    device = load_device(board.device)
    if device.emulator is None:
        raise FarmError(
            f"board {board.name}: device {device.name} has no [emulator]; "
            f"add one to devices/{device.name}.toml or use another kind of board"
        )
    return device
