"""An SSH host on loopback, for a processor without an operating system.

A DSP is reached through its host, which stores the files and starts programs on it. This is such a
host, in this process: it listens on 127.0.0.1 only, accepts one freshly generated key, and runs
commands as child processes in its own folder. Closing it ends all of them.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, MSG_CHANNEL_REQUEST, OPEN_SUCCEEDED

from pockengine.errors import FarmError
from pockengine.farm.transports.lifetime import ending_with_us
from pockengine.farm.transports.ssh import LOG, SshAddress
from pockengine.farm.transports.transport import PowerAction

CHUNK = 1 << 16


class Loopback:
    """The supply of a processor reached through a host on loopback: power is the host's."""

    def __init__(self, board: str) -> None:
        self._board = board
        self._home = Path(tempfile.mkdtemp(prefix="pockengine-loopback-"))
        self._host_key = _new_key(self._home / "host_key")
        self._client_key = _new_key(self._home / "client_key")
        self._listener: socket.socket | None = None
        self._sessions: list[paramiko.Transport] = []
        self._lines: list[str] = []
        (self._home / "work").mkdir()

    @property
    def address(self) -> SshAddress:
        """Where the host listens while it is on."""
        if self._listener is None:
            raise FarmError(f"{self._board} is switched off; switch it on first")
        return SshAddress(
            board=self._board,
            host="127.0.0.1",
            port=self._listener.getsockname()[1],
            user="farm",
            key_file=self._home / "client_key",
            host_key=f"{self._host_key.get_name()} {self._host_key.get_base64()}",
            workdir=str(self._home / "work"),
        )

    def power(self, action: PowerAction) -> None:
        """Start or stop listening; stopping ends all commands and deletes all files."""
        if action in ("off", "cycle"):
            self._stop()
            shutil.rmtree(self._home / "work", ignore_errors=True)
            (self._home / "work").mkdir()
        if action in ("on", "cycle") and self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def console(self) -> str:
        """Return a line for each command that was run."""
        return "".join(f"{line}\n" for line in self._lines)

    def close(self) -> None:
        """Stop and remove every file."""
        self._stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def _stop(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()
            self._listener = None
        for session in self._sessions:
            session.close()
        self._sessions.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # switched off
            session = _Session(connection)
            session.set_log_channel(LOG)
            session.add_server_key(self._host_key)
            self._sessions.append(session)
            server = _Host(self._client_key, self._home / "work", self._lines, session.waiting)
            session.start_server(server=server, event=threading.Event())


class _Session(paramiko.Transport):
    """A connection whose commands start only after their request was answered."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.waiting: list[Callable[[], None]] = []
        table: dict[int, Any] = self._channel_handler_table  # type: ignore[has-type]
        self._answer = table[MSG_CHANNEL_REQUEST]
        self._channel_handler_table = {**table, MSG_CHANNEL_REQUEST: self._request}

    def _request(self, channel: paramiko.Channel, message: paramiko.Message) -> None:
        self._answer(channel, message)
        while self.waiting:
            threading.Thread(target=self.waiting.pop(), daemon=True).start()


class _Host(paramiko.ServerInterface):
    """Admits one key and runs its requests."""

    def __init__(
        self,
        key: paramiko.PKey,
        folder: Path,
        lines: list[str],
        waiting: list[Callable[[], None]],
    ) -> None:
        self._key = key
        self._waiting = waiting
        self._folder = folder
        self._lines = lines

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL if key == self._key else AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._waiting.append(partial(self._run, channel, command.decode(errors="surrogateescape")))
        return True

    def _run(self, channel: paramiko.Channel, command: str) -> None:
        with subprocess.Popen(
            ending_with_us(["sh", "-c", command]),
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as child:
            threading.Thread(target=self._feed, args=(channel, child.stdin), daemon=True).start()
            pumps = [
                threading.Thread(target=_pump, args=(child.stdout, channel.sendall)),
                threading.Thread(target=_pump, args=(child.stderr, channel.sendall_stderr)),
            ]
            for pump in pumps:
                pump.start()
            while child.poll() is None and not channel.closed:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(0.2)
            if channel.closed:  # no reader is left
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
            for pump in pumps:
                pump.join()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            _tell_ending(channel, child.returncode)
            channel.close()

    def _feed(self, channel: paramiko.Channel, stdin: IO[bytes]) -> None:
        """Forward a command's input, which starts with the command text."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException), stdin:
            text = channel.recv(CHUNK)
            self._lines.append(text.decode(errors="replace"))
            while text:
                stdin.write(text)
                stdin.flush()
                text = channel.recv(CHUNK)


def _pump(stream: object, send: object) -> None:
    """Forward a stream until it ends or its reader is gone."""
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        while data := os.read(stream.fileno(), CHUNK):  # type: ignore[attr-defined]
            send(data)  # type: ignore[operator]


def _tell_ending(channel: paramiko.Channel, returncode: int) -> None:
    """Send the exit status, or RFC 4254's `exit-signal`, for which paramiko has no call."""
    if returncode >= 0:
        channel.send_exit_status(returncode)
        return
    message = paramiko.Message()
    message.add_byte(paramiko.common.cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string("exit-signal")
    message.add_boolean(False)
    message.add_string(signal.Signals(-returncode).name.removeprefix("SIG"))
    message.add_boolean(False)
    message.add_string("")
    message.add_string("")
    transport: Any = channel.get_transport()
    transport._send_user_message(message)


def _new_key(path: Path) -> paramiko.PKey:
    text = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(text)
    return paramiko.Ed25519Key.from_private_key_file(str(path))
