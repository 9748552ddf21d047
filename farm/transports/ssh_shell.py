"""POSIX text over SSH, whatever the login shell is: bash, fish, tcsh, or one that prints a line.

The command is `exec sh`, which every shell understands. The text comes on standard input, as one
compound command, so that it is read whole before it runs. It prints a mark on both streams first:
output before the mark is the login shell's, and is dropped. Files go through standard input
and output too; no sftp server is needed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex
from typing import IO

import paramiko

from pockengine.errors import BoardRefused
from pockengine.farm.transports.marked import OutputStream, marking, quiet
from pockengine.farm.transports.ssh_ending import EndingTransport
from pockengine.farm.transports.transport import Progress

COMMAND = "exec sh"
POLL_S = 0.01
CHUNK = 1 << 16


@dataclass(frozen=True)
class Upload:
    """Standard input of a command."""

    stream: IO[bytes]
    size: int
    progress: Progress | None = None


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status or a signal, None for both where none came."""

    status: int | None
    signal: str | None


class Shell:
    """Runs POSIX text on one connection."""

    def __init__(self, board: str, transport: EndingTransport, grace_s: float) -> None:
        self._board = board
        self._transport = transport
        self._grace_s = grace_s

    def run(
        self,
        text: str,
        streams: tuple[Callable[[bytes], object], Callable[[bytes], object]],
        *,
        what: str,
        timeout_s: float,
        limit: int,
        upload: Upload | None = None,
    ) -> Ended:
        """Run a text; `streams` take its standard output and error.

        SSHException, OSError or EOFError if the connection fails, BoardRefused if the login
        shell starts no `sh`.
        """
        mark = f"pockengine-{token_hex(8)}"
        both = [OutputStream(what, f"{mark}\n".encode(), limit, write) for write in streams]
        deadline = time.monotonic() + timeout_s + self._grace_s
        with self._transport.open_session(timeout=self._grace_s) as channel:
            channel.settimeout(self._grace_s)
            channel.exec_command(COMMAND)
            channel.sendall(_marked(text, mark, upload is not None))
            if upload is not None:
                _collect(channel, both, deadline, lambda: both[0].started)
                _send(channel, upload, deadline)
            channel.shutdown_write()
            _collect(channel, both, deadline, lambda: False)
            status = channel.recv_exit_status() if channel.exit_status_ready() else -1
        if status >= 0 and not both[0].started:
            raise self._no_shell(status, both)
        signal = self._transport.ending(channel) if status == -1 else None
        return Ended(status if status >= 0 else None, signal)

    def _no_shell(self, status: int, streams: list[OutputStream]) -> BoardRefused:
        answer = b"".join(stream.before for stream in streams).decode(errors="replace").strip()
        return BoardRefused(
            f"{self._board}: its login shell does not start `sh` (exit status {status}"
            f"{f', it says {answer[-200:]!r}' if answer else ''}): give the user a shell (`chsh -s "
            "/bin/sh`), and no ForceCommand"
        )


def _marked(text: str, mark: str, reads: bool) -> bytes:
    body = marking(mark, text if reads else quiet(text))
    return f"{{ {body}\n}}\n".encode(errors="surrogateescape")


def _send(channel: paramiko.Channel, upload: Upload, deadline: float) -> None:
    """Send a file until it ends or the command does, which says itself why."""
    done = 0
    while (data := upload.stream.read(CHUNK)) and not channel.closed:
        if time.monotonic() > deadline:
            raise paramiko.SSHException("the board takes data too slowly")
        try:
            channel.sendall(data)
        except OSError:
            if channel.closed or channel.exit_status_ready():
                return
            raise
        done += len(data)
        if upload.progress is not None:
            upload.progress(done, upload.size)


def _collect(
    channel: paramiko.Channel,
    streams: list[OutputStream],
    deadline: float,
    enough: Callable[[], bool],
) -> None:
    """Read both streams until the command has ended and everything has arrived, or it is enough."""
    while True:
        done = channel.closed or (channel.eof_received and channel.exit_status_ready())
        while channel.recv_ready():
            streams[0].take(channel.recv(CHUNK))
        while channel.recv_stderr_ready():
            streams[1].take(channel.recv_stderr(CHUNK))
        if done or enough():
            return
        if time.monotonic() > deadline:
            raise paramiko.SSHException("the board stopped answering")
        time.sleep(POLL_S)
