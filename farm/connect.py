"""Open a board, whatever its kind: the one place that knows which transport serves which place."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.board import Board, Emulated, Local
from pockengine.farm.emulated import Guest, boot
from pockengine.farm.local import LocalTransport
from pockengine.farm.ssh import SshAddress, connect_ssh
from pockengine.farm.transport import Transport


@contextmanager
def connect(board: Board) -> Iterator[Transport]:
    """Yield an open transport to the board and close it (an emulated one: power it off) after."""
    place = board.place
    if isinstance(place, Emulated):
        with boot(board.name, guest_of(board, place)) as emulated:
            yield emulated
    elif isinstance(place, Local):
        with closing(LocalTransport(board.name)) as local:
            yield local
    else:
        address = SshAddress(
            board=board.name,
            host=place.host,
            port=place.port,
            user=place.user,
            key_file=Path(place.key_file).expanduser(),
            host_key=place.host_key,
            workdir=place.workdir,
        )
        with closing(connect_ssh(address)) as remote:
            yield remote


def guest_of(board: Board, place: Emulated) -> Guest:
    """Return the machine that QEMU is to play, from the device's file."""
    device = load_device(board.device)
    if device.emulator is None:
        raise FarmError(
            f"board {board.name}: device {device.name} has no [emulator]; "
            f"add one to devices/{device.name}.toml or use another kind of board"
        )
    return Guest(
        machine=device.emulator.machine,
        cpu=device.emulator.cpu,
        cores=device.cpu.cores,
        memory_mb=device.emulator.memory_bytes >> 20,
        disk_mb=place.disk_mb,
    )
