"""A board's power supply and serial console.

QEMU provides both for an emulated board. For a physical board the inventory names a command that
switches its power socket, and a serial line.
"""

import subprocess
from collections.abc import Sequence
from typing import Protocol

from pockengine.errors import FarmError, reason_of
from pockengine.farm.transports.serial_log import SerialLog
from pockengine.farm.transports.ssh import SshAddress
from pockengine.farm.transports.transport import PowerAction

SWITCH_TIMEOUT_S = 120.0


class Supply(Protocol):
    """Power and console of one board."""

    @property
    def address(self) -> SshAddress:
        """Where the board answers SSH once it has booted."""

    def power(self, action: PowerAction) -> None:
        """Switch; after "on" and "cycle" the board boots, but need not answer yet."""

    def console(self) -> str:
        """Return the console's output so far."""

    def close(self) -> None:
        """Stop listening, and power off what was started only for us."""


class Shelf:
    """A physical board: switched by a command, with a serial console."""

    def __init__(self, address: SshAddress, switch: Sequence[str], console: str) -> None:
        self._address = address
        self._switch = tuple(switch)
        self._log = SerialLog(console, address.board) if console else None

    @property
    def address(self) -> SshAddress:
        """Where the board answers SSH."""
        return self._address

    def power(self, action: PowerAction) -> None:
        """Run the switch's command with the action as its last argument."""
        board = self._address.board
        if not self._switch:
            raise FarmError(
                f"{board} has no power command; switch it by hand, or add "
                f'power = ["command", ...] to its entry'
            )
        try:
            done = subprocess.run(
                [*self._switch, action],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SWITCH_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FarmError(
                f"{board}: power {action}: {self._switch[0]}: {reason_of(error)}"
            ) from None
        if done.returncode:
            message = done.stderr.strip()[-300:] or "it said nothing"
            raise FarmError(
                f"{board}: power {action}: {self._switch[0]} ended with "
                f"status {done.returncode}: {message}"
            )

    def console(self) -> str:
        """Return the serial line's output since listening began."""
        return self._log.text() if self._log else ""

    def close(self) -> None:
        """Stop listening."""
        if self._log:
            self._log.close()
