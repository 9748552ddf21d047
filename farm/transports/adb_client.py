"""The `adb` client: one phone of one adb server, and the meaning of its errors.

A serial is a phone's own, on a cable, or host:port of one in the network. adb starts its server
where none runs; phones of the network are then connected again.
"""

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pockengine.errors import BoardRefused, BoardUnreachable, FarmError
from pockengine.farm.transports.child import collect, end_group

ADB = "adb"
WORKDIR = "/data/local/tmp/pockengine"
"""The folder of a phone in which its user `shell` may run programs."""
INSTALL = "apt-get install adb, or Android's platform-tools"
CONNECT_S = 30.0
ATTEMPT_S = 10.0
NETWORK = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})", re.ASCII)
SERIAL = re.compile(r"[\w.:\[\]-]{1,128}", re.ASCII)

REFUSALS: tuple[tuple[str, type[FarmError], str], ...] = (
    (
        "unauthorized",
        BoardRefused,
        "does not trust this computer: unlock it and accept the key that it shows; if it shows "
        "none, revoke USB debugging authorizations in its developer options and plug it in again",
    ),
    (
        "authenticate",
        BoardRefused,
        "does not trust this computer: unlock it and accept the key that it shows",
    ),
    (
        "no permissions",
        BoardRefused,
        "may not be opened by this user: install android-sdk-platform-tools-common (udev rules), "
        "join the group plugdev, and plug it in again",
    ),
    (
        "offline",
        BoardUnreachable,
        "is offline: unlock it and plug it in again, or run `adb reconnect offline`",
    ),
    (
        "not found",
        BoardUnreachable,
        "is not connected: plug it in with USB debugging on; `adb devices` lists the serials",
    ),
    (
        "failed to connect",
        BoardUnreachable,
        "does not answer: turn on its wireless debugging, or run `adb tcpip 5555` with it on a "
        "cable",
    ),
)
"""Words of adb's errors, the kind of error, and the fact with its fix."""


@dataclass(frozen=True)
class AdbAddress:
    """A phone: its board's name, its serial or host:port, the folder for jobs.

    `socket` is another adb server's, as `adb -L` takes it; `environment` are variables for adb.
    """

    board: str
    serial: str
    workdir: str
    socket: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def server_command(address: AdbAddress) -> list[str]:
    """Return the command of an adb server that stays in the foreground."""
    return [ADB, "-L", address.socket, "server", "nodaemon"]


class AdbClient:
    """Runs adb for one phone."""

    def __init__(self, address: AdbAddress) -> None:
        if shutil.which(ADB) is None:
            raise FarmError(f"{address.board}: adb is missing; install it: {INSTALL}")
        if not SERIAL.fullmatch(address.serial) or address.serial.startswith("-"):
            raise FarmError(
                f"{address.board}: {address.serial!r} is no serial; `adb devices` lists them"
            )
        self.address = address
        server = ("-L", address.socket) if address.socket else ()
        self._server = (ADB, *server)
        self._phone = (*self._server, "-s", address.serial)
        self._environment = {**os.environ, **address.environment}

    def connect(self, timeout_s: float = CONNECT_S) -> None:
        """Wait until the phone answers; BoardRefused at once for one that rejects us."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._connect()
            except BoardRefused:
                raise
            except BoardUnreachable:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.3)

    def call(self, *arguments: str, timeout_s: float = 60.0) -> str:
        """Run an adb command of the phone; return its output, which errors are part of."""
        return self._call([*self._phone, *arguments], timeout_s)

    def stream(
        self,
        arguments: Sequence[str],
        timeout_s: float,
        stdout: Callable[[bytes], object],
        stderr: Callable[[bytes], object],
    ) -> None:
        """Run an adb command of the phone; TimeoutError, after which adb is killed."""
        with self._started([*self._phone, *arguments]) as process:
            collect(process, time.monotonic() + timeout_s, stdout, stderr)

    def end_server(self) -> None:
        """End the adb server, if one runs."""
        self._call([*self._server, "kill-server"], ATTEMPT_S)

    def refusal(self, words: str) -> FarmError:
        """Return the error for adb's message."""
        where = f"{self.address.board} ({self.address.serial})"
        for word, kind, text in REFUSALS:
            if word in words:
                return kind(f"{where} {text}")
        lines = words.strip().splitlines()
        return BoardUnreachable(f"{where} does not answer: {lines[-1] if lines else 'adb is mute'}")

    def _connect(self) -> None:
        words = self._call([*self._server, "start-server"], ATTEMPT_S)
        if "cannot" in words or "failed" in words:
            raise FarmError(
                f"{self.address.board}: the adb server does not start: "
                f"{words.strip().splitlines()[-1]}; run `adb kill-server`, then `adb devices`"
            )
        serial = self.address.serial
        in_network = NETWORK.fullmatch(serial) is not None
        if in_network:
            words = self._call([*self._server, "connect", serial], ATTEMPT_S)
            if "connected to" not in words:
                raise self.refusal(words)
        state = self.call("get-state", timeout_s=ATTEMPT_S)
        if "device" not in state.splitlines():
            if in_network:  # else the server tries again at its own pace
                self._call([*self._server, "disconnect", serial], ATTEMPT_S)
            raise self.refusal(state)

    def _call(self, command: Sequence[str], timeout_s: float) -> str:
        output = bytearray()
        try:
            with self._started(command) as process:
                collect(process, time.monotonic() + timeout_s, output.extend, output.extend)
        except TimeoutError:
            output += f"\nadb did not answer within {timeout_s:g} s".encode()
        return output.decode(errors="replace")

    @contextlib.contextmanager
    def _started(self, command: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
        process = subprocess.Popen(
            [os.fsencode(word) for word in command],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end_group(process)
