"""A rack of emulated boards: booted once, shared by many tests, and disturbed by faults.

`open` stands in for `connect`: it makes a new connection each time, and power-cycles a board after
an error. QEMU ends with the thread that started it, so each board has its own thread.
"""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Self

from pockengine.farm.boards.board import Board, Emulated
from pockengine.farm.images.image import ensure_image
from pockengine.farm.transports.emulated import Emulation, Guest
from pockengine.farm.transports.powered import PoweredTransport
from pockengine.farm.transports.ssh import SshAddress
from pockengine.farm.transports.transport import PowerAction, Transport

GUEST = Guest("virt", "cortex-a72", cores=1, memory_mb=256, disk_mb=96)
BOOT_TIMEOUT_S = 240.0


class Rack:
    """Boards by name; `tamper` changes the address or host key of the next connection."""

    def __init__(self, names: Sequence[str]) -> None:
        self.boards = [Board(name, "rpi4", Emulated(GUEST.disk_mb)) for name in names]
        self.tamper: dict[str, Callable[[SshAddress], SshAddress]] = {}
        self.login_timeout_s = 120.0
        self._starters = {name: ThreadPoolExecutor(1) for name in names}
        image = ensure_image()
        self._supplies = {name: Emulation(name, GUEST, image, BOOT_TIMEOUT_S) for name in names}
        self._troubled = set(names)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for supply in self._supplies.values():
            supply.close()
        for starter in self._starters.values():
            starter.shutdown()

    @contextmanager
    def open(self, board: Board) -> Iterator[Transport]:
        """Connect to a board; boot it first if the last connection ended in an error.

        A tampered connection that was never established does not count as an error.
        """
        name = board.name
        if name in self._troubled:
            self._starters[name].submit(self._supplies[name].power, "cycle").result()
            self._troubled.discard(name)
        supply = Tampered(self._supplies[name], self.tamper.get(name, lambda address: address))
        reached = name not in self.tamper
        try:
            timeout = self.login_timeout_s
            with closing(PoweredTransport(supply, login_timeout_s=timeout)) as transport:
                reached = True
                yield transport
        except BaseException:
            if reached:
                self._troubled.add(name)
            raise

    def kill(self, name: str) -> None:
        """Kill a board's QEMU, like a power loss; do nothing if it is off."""
        machine = self._supplies[name].machine
        if machine is not None:
            machine.process.kill()

    @contextmanager
    def admin(self, name: str) -> Iterator[Transport]:
        """Connect without tampering; errors do not cause a reboot."""
        supply = Tampered(self._supplies[name], lambda address: address)
        with closing(PoweredTransport(supply)) as transport:
            yield transport

    def reset(self) -> None:
        """Undo tampering and restore the login timeout."""
        self.tamper.clear()
        self.login_timeout_s = 120.0


@dataclass
class Tampered:
    """A rack's power supply for one connection: a changed address, and a close without effect."""

    supply: Emulation
    change: Callable[[SshAddress], SshAddress]

    @property
    def address(self) -> SshAddress:
        return self.change(self.supply.address)

    def power(self, action: PowerAction) -> None:
        self.supply.power(action)

    def console(self) -> str:
        return self.supply.console()

    def close(self) -> None:
        pass


class Cutter:
    """A proxy to a board that breaks once, after a number of bytes in one direction."""

    def __init__(self, port: int, up: int | None = None, down: int | None = None) -> None:
        self._port = port
        self._left = {"up": up, "down": down}
        self.cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            for source, target, direction in ((near, far, "up"), (far, near, "down")):
                arguments = (source, target, direction)
                threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        try:
            while data := source.recv(1 << 14):
                left = self._left[direction]
                if left is not None and not self.cut:
                    self._left[direction] = left - len(data)
                    self.cut = left < len(data)
                if self.cut:
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            with suppress(OSError):  # close() without it waits for the other pump to leave recv()
                end.shutdown(socket.SHUT_RDWR)
            end.close()
