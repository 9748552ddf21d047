"""An SSH server on loopback that misbehaves on purpose, where a real board cannot be made to.

It runs what it is asked to as child processes and serves real files over SFTP; `Faults` says what
goes wrong.
"""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from paramiko.sftp import SFTP_FAILURE, SFTP_OK

from pockengine.farm.transports.ssh import SshAddress

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@dataclass
class Faults:
    """What this server does wrong; by default nothing."""

    silent: bool = False  # accepts the connection and never says a word
    lose_writes_after: int | None = None  # bytes of an upload that are kept; the rest is dropped
    cut_at_command: str | None = None  # drops the connection when a command contains this
    hang_at_command: str | None = None  # takes such a command and never answers
    free_bytes: list[int] = field(default_factory=list)  # what `df` says, call by call
    answers: dict[str, bytes] = field(default_factory=dict)  # to commands that contain a word


class _File(paramiko.SFTPHandle):
    def __init__(self, path: str, flags: int, keep: int | None) -> None:
        super().__init__(flags)
        handle = os.open(path, flags, 0o644)
        self.readfile = self.writefile = os.fdopen(
            handle, "rb" if flags & os.O_ACCMODE == os.O_RDONLY else "r+b"
        )
        self.keep = keep

    def write(self, offset: int, data: "ReadableBuffer") -> int:
        data = bytes(data)
        if self.keep is not None and offset + len(data) > self.keep:
            return SFTP_FAILURE if offset > self.keep else SFTP_OK
        return super().write(offset, data)


class _Files(paramiko.SFTPServerInterface):
    def __init__(self, server: "_Server") -> None:
        super().__init__(server)
        self.faults = server.faults

    def open(self, path: str, flags: int, attr: object) -> paramiko.SFTPHandle | int:
        try:
            return _File(path, flags, self.faults.lose_writes_after)
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)

    def stat(self, path: str) -> paramiko.SFTPAttributes | int:
        try:
            return paramiko.SFTPAttributes.from_stat(os.stat(path))
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)

    def chattr(self, path: str, attr: paramiko.SFTPAttributes) -> int:
        paramiko.SFTPServer.set_file_attr(path, attr)
        return SFTP_OK

    def posix_rename(self, oldpath: str, newpath: str) -> int:
        os.replace(oldpath, newpath)
        return SFTP_OK


class _Server(paramiko.ServerInterface):
    def __init__(self, client_key: paramiko.PKey, faults: Faults) -> None:
        self.client_key = client_key
        self.faults = faults

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL if key == self.client_key else AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command.decode()), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: str) -> None:
        time.sleep(0.05)  # the request is answered first, then its result
        if self.faults.cut_at_command and self.faults.cut_at_command in command:
            channel.get_transport().close()
            return
        if self.faults.hang_at_command and self.faults.hang_at_command in command:
            return
        if self.faults.free_bytes and "df -P -k" in command:
            free = self.faults.free_bytes.pop(0) // 1024
            command = f"echo head; echo fs 1 1 {free} 1% /"
        done = subprocess.run(["sh", "-c", command], capture_output=True)
        said = [answer for word, answer in self.faults.answers.items() if word in command]
        channel.sendall(said[0] if said else done.stdout)
        channel.sendall_stderr(done.stderr)
        channel.send_exit_status(done.returncode & 255)
        channel.close()


def new_key(path: Path) -> paramiko.PKey:
    """Make an ed25519 key file."""
    path.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
    )
    return paramiko.Ed25519Key.from_private_key_file(str(path))


@contextmanager
def serving(folder: Path, faults: Faults) -> Iterator[SshAddress]:
    """Serve SSH on a free port of loopback; yield how to reach it, with its right host key."""
    host_key, client_key = new_key(folder / "host"), new_key(folder / "client")
    (folder / "work").mkdir()
    transports: list[paramiko.Transport] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return  # the listener was closed: the test is over
                if faults.silent:
                    time.sleep(30)
                transport = paramiko.Transport(connection)
                transport.add_server_key(host_key)
                transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Files)
                transports.append(transport)
                transport.start_server(server=_Server(client_key, faults), event=threading.Event())

        threading.Thread(target=accept, daemon=True).start()
        yield SshAddress(
            board="stub",
            host="127.0.0.1",
            port=listener.getsockname()[1],
            user="root",
            key_file=folder / "client",
            host_key=f"{host_key.get_name()} {host_key.get_base64()}",
            workdir=str(folder / "work"),
        )
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        for transport in transports:
            transport.close()
