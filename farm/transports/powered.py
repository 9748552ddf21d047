"""A board over SSH together with its power and console: the whole protocol for any such board.

Switching it ends the connection; "on" and "cycle" wait for the board and connect again, so that the
same object serves a job before and after.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from pockengine.errors import BoardRefused, BoardUnreachable
from pockengine.farm.transports.limits import NO_LIMITS, CommandLimits
from pockengine.farm.transports.ssh import SshAddress, SshTransport, connect_ssh
from pockengine.farm.transports.supply import Supply
from pockengine.farm.transports.transport import PowerAction, Progress, RunResult, Sink

BOOT_TIMEOUT_S = 180.0
LOGIN_TIMEOUT_S = 30.0


class PoweredTransport:
    """An open board; see transport.Transport for its contract."""

    def __init__(
        self,
        supply: Supply,
        launcher: Sequence[str] = (),
        boot_timeout_s: float = BOOT_TIMEOUT_S,
        login_timeout_s: float = LOGIN_TIMEOUT_S,
    ) -> None:
        """Log in to a board that is on. The supply is closed with the transport, not on an error.

        `boot_timeout_s` is how long a board may take that was switched on, `login_timeout_s` one
        that is on.
        """
        self._supply = supply
        self._boot_timeout_s = boot_timeout_s
        address = supply.address
        self.board = address.board
        self.workdir = address.workdir
        self.launcher = tuple(launcher)
        self._ssh: SshTransport | None = connect_ssh(address, login_timeout_s)

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        limits: CommandLimits = NO_LIMITS,
        sink: Sink | None = None,
    ) -> RunResult:
        """Run a command over SSH."""
        return self._open().run(argv, cwd=cwd, timeout_s=timeout_s, limits=limits, sink=sink)

    def put(self, source: Path, target: str, progress: Progress | None = None) -> bool:
        """Send a file unless it is there."""
        return self._open().put(source, target, progress)

    def get(self, source: str, target: Path) -> None:
        """Fetch a file."""
        self._open().get(source, target)

    def console(self) -> str:
        """Return the serial console's output."""
        return self._supply.console()

    def power(self, action: PowerAction) -> None:
        """Switch the board, and connect again when it is to be on."""
        self._disconnect()
        self._supply.power(action)
        if action != "off":
            self._ssh = wait_to_connect(self._supply.address, self._boot_timeout_s)

    def close(self) -> None:
        """Close the connection, and release power and console."""
        self._disconnect()
        self._supply.close()

    def _open(self) -> SshTransport:
        if self._ssh is None:
            raise BoardUnreachable(f"{self.board} is switched off; switch it on first")
        return self._ssh

    def _disconnect(self) -> None:
        if self._ssh is not None:
            self._ssh.close()
            self._ssh = None


def wait_to_connect(address: SshAddress, timeout_s: float) -> SshTransport:
    """Retry until the login succeeds or times out; BoardRefused is raised at once."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return connect_ssh(address, LOGIN_TIMEOUT_S)
        except BoardRefused:
            raise
        except BoardUnreachable:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)
