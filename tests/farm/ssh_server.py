"""An SSH server on loopback with faults that a real board cannot reproduce.

It runs commands as child processes. `Faults` names the login shell and the faults.
"""

import contextlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from pockengine.farm.transports.ssh import SshAddress

PROBE = "lacks $tool"


@dataclass
class Faults:
    """Faults of the server; none by default."""

    silent: bool = False  # accepts the connection and stays silent
    lose_writes_after: int | None = None  # stores this many bytes of an upload, drops the rest
    cut_at_command: str | None = None  # drops the connection when a command contains this
    hang_at_command: str | None = None  # accepts such a command and never answers
    free_bytes: list[int] = field(default_factory=list)  # output of `df`, call by call
    login_shell: tuple[str, ...] = ("sh",)
    greeting: str = ""  # commands that the login shell runs first
    environment: dict[str, str] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)  # keyed by a word of the command


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
        text = channel.recv(1 << 16)
        request = text.decode(errors="replace")
        if PROBE in request:  # the probe for required tools comes first and is served normally
            self._serve(channel, command, text)
            return
        if self.faults.cut_at_command and self.faults.cut_at_command in request:
            channel.get_transport().close()
            return
        if self.faults.hang_at_command and self.faults.hang_at_command in request:
            return
        if self.faults.free_bytes and "df -P -k" in request:
            free = self.faults.free_bytes.pop(0) // 1024
            text = _answering(request, f"head\nfs 1 1 {free} 1% /\n".encode())
        for word, answer in self.faults.answers.items():
            if word in request:
                text = _answering(request, answer)
        self._serve(channel, command, text)

    def _serve(self, channel: paramiko.Channel, command: str, text: bytes) -> None:
        with subprocess.Popen(
            [*self.faults.login_shell, "-c", f"{self.faults.greeting}{command}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self.faults.environment},
        ) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            stderr = child.stderr
            feeding = threading.Thread(target=self._feed, args=(channel, child.stdin, text))
            feeding.start()
            errors: list[bytes] = []
            reading = threading.Thread(target=lambda: errors.append(stderr.read()))
            reading.start()
            while data := os.read(child.stdout.fileno(), 1 << 16):
                channel.sendall(data)
            reading.join()
        channel.sendall_stderr(errors[0])
        code = child.returncode
        channel.send_exit_status(code if code >= 0 else 128 - code)
        channel.close()
        feeding.join()

    def _feed(self, channel: paramiko.Channel, stdin: IO[bytes], text: bytes) -> None:
        with contextlib.suppress(OSError), stdin:
            keep = self.faults.lose_writes_after
            stdin.write(text)
            stdin.flush()
            while data := channel.recv(1 << 16):
                part = data if keep is None else data[:keep]
                keep = None if keep is None else keep - len(part)
                stdin.write(part)
                stdin.flush()


def _answering(command: str, answer: bytes) -> bytes:
    """Return a command that prints `answer`, after the same marks."""
    marks = command.partition("exec < /dev/null;")[0]
    octal = "".join(f"\\{byte:03o}" for byte in answer)
    return f"{marks}printf '{octal}'\n}}\n".encode()


def new_key(path: Path, rsa: bool = False) -> paramiko.PKey:
    """Write a key file: ed25519, or RSA if `rsa`."""
    if rsa:
        key = paramiko.RSAKey.generate(2048)
        key.write_private_key_file(str(path))
        return key
    path.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
    )
    return paramiko.Ed25519Key.from_private_key_file(str(path))


@contextmanager
def serving(folder: Path, faults: Faults, rsa: bool = False) -> Iterator[SshAddress]:
    """Serve SSH on a free loopback port; yield its address, with the correct host key."""
    host_key, client_key = new_key(folder / "host"), new_key(folder / "client", rsa)
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
        listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        for transport in transports:
            transport.close()
