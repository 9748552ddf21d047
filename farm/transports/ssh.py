"""A board over SSH: one pinned host key, one client key, time-outs on everything.

Deliberately unsupported: passwords, agents, keys from ~/.ssh, trust of host keys on first use.
Files go into a content-addressed store on the board (`cas/<sha256>`) and are hard-linked to their
destinations, so a file that the board already has is not sent again.
"""

import logging
import math
import os
import shlex
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import paramiko
from paramiko.pkey import UnknownKeyType

from pockengine.errors import BoardRefused, BoardUnreachable, FarmError, JobFailed, reason_of
from pockengine.farm.transports import ssh_ready
from pockengine.farm.transports.content_store import OUR_DISK, ContentStore, disk_fault
from pockengine.farm.transports.limits import NO_LIMITS, CommandLimits
from pockengine.farm.transports.ssh_ending import EndingTransport
from pockengine.farm.transports.ssh_shell import Shell, Upload
from pockengine.farm.transports.transport import Output, Progress, RunResult, Sink

KEEP_ALIVE_S = 5
GRACE_S = 10.0  # how much longer than the board's own time-out we wait for its answer
READY_S = 60.0
TRANSFER_S = 3600.0
LOG = "pockengine.farm.transports.ssh"
logging.getLogger(LOG).addHandler(logging.NullHandler())  # errors are raised, not also printed


@dataclass(frozen=True)
class SshAddress:
    """Where a board listens, who logs in, and which one host key is accepted."""

    board: str
    host: str
    port: int
    user: str
    key_file: Path
    host_key: str  # as in known_hosts: "ssh-ed25519 AAAA..."
    workdir: str


def connect_ssh(address: SshAddress, timeout_s: float = 10.0) -> "SshTransport":
    """Log in; BoardUnreachable without an answer, or for a refused key or a wrong host."""
    client = paramiko.SSHClient()
    client.set_log_channel(LOG)
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    where = address.host if address.port == 22 else f"[{address.host}]:{address.port}"
    pinned = _host_key(address)
    client.get_host_keys().add(where, pinned.get_name(), pinned)
    try:
        client.connect(
            address.host,
            port=address.port,
            username=address.user,
            pkey=_client_key(address),
            timeout=timeout_s,
            banner_timeout=timeout_s,
            auth_timeout=timeout_s,
            channel_timeout=timeout_s,
            allow_agent=False,
            look_for_keys=False,
            transport_factory=EndingTransport,
        )
        return SshTransport(address, client)
    except (paramiko.SSHException, OSError, EOFError) as error:
        client.close()
        raise _refusal(address, error) from None
    except BaseException:
        client.close()
        raise


class SshTransport:
    """An open SSH connection to a board; see transport.Transport for its contract."""

    def __init__(self, address: SshAddress, client: paramiko.SSHClient) -> None:
        self.board = address.board
        self.workdir = address.workdir
        self._client = client
        transport = client.get_transport()
        assert isinstance(transport, EndingTransport)  # made by connect()
        transport.set_keepalive(KEEP_ALIVE_S)
        self._shell = Shell(address.board, transport, GRACE_S)
        self._timeout = self._ready()
        self._store = ContentStore(self.board, self.workdir, self.run, self._send)

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        limits: CommandLimits = NO_LIMITS,
        sink: Sink | None = None,
    ) -> RunResult:
        """Run a command under the board's own `timeout`, which outlives a lost connection."""
        limit = str(max(1, math.ceil(timeout_s)))
        folder = shlex.quote(cwd or "/")
        command = shlex.join([*self._timeout, limit, *argv])
        line = f"cd {folder} && {{ {limits.shell()}exec {command}; }}"
        return self._say(line, argv, timeout_s, limit=limits.output_bytes, sink=sink)

    def _say(
        self,
        text: str,
        argv: Sequence[str],
        timeout_s: float,
        limit: int,
        sink: Sink | None = None,
    ) -> RunResult:
        """Run a POSIX script, named `argv` in errors."""
        start, output = time.monotonic(), Output(sink)
        try:
            ended = self._shell.run(
                text,
                (partial(output.take, "stdout"), partial(output.take, "stderr")),
                what=f"{self.board}: {argv[0]!r}",
                timeout_s=timeout_s,
                limit=limit,
            )
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost(argv, str(error)) from None
        took, status, signal = time.monotonic() - start, ended.status, ended.signal
        if status is None and signal is None:
            raise self._lost(argv, "no exit status came")
        if took >= timeout_s and (signal == "SIGKILL" or status in (124, 137)):
            raise JobFailed(
                f"{self.board}: {argv[0]!r} did not end within {timeout_s:g} s and was killed"
            )
        return RunResult(tuple(argv), status, signal, *output.both(), duration_s=took)

    def put(self, source: Path, target: str, progress: Progress | None = None) -> bool:
        """Send a file unless the board's store has it, then link it to its destination."""
        return self._store.put(source, target, progress)

    def get(self, source: str, target: Path) -> None:
        """Fetch a file through a temporary name and compare its hash with the board's.

        LogError if this machine's disk is full: the board is not at fault.
        """
        part = target.with_name(f".{target.name}.part")
        stderr = bytearray()
        try:
            with part.open("wb") as stream:
                ended = self._shell.run(
                    f"exec cat < {shlex.quote(source)}",
                    (stream.write, stderr.extend),
                    what=f"{self.board}: {source}",
                    timeout_s=TRANSFER_S,
                    limit=sys.maxsize,
                )
            self._store.accept(part, source, stderr.decode(errors="replace"), not ended.status)
            part.replace(target)
        except (paramiko.SSHException, OSError, EOFError) as error:
            if isinstance(error, OSError) and error.errno in OUR_DISK:
                raise disk_fault(target, os.strerror(error.errno)) from None
            raise FarmError(f"{self.board}: cannot download {source}: {reason_of(error)}") from None
        finally:
            part.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _send(self, source: Path, part: str, progress: Progress | None) -> str:
        """Upload a file through standard input; return what went wrong."""
        stderr = bytearray()
        try:
            with source.open("rb") as stream:
                self._shell.run(
                    f"exec cat > {shlex.quote(part)}",
                    (stderr.extend, stderr.extend),
                    what=f"{self.board}: {part}",
                    timeout_s=TRANSFER_S,
                    limit=1 << 20,
                    upload=Upload(stream, source.stat().st_size, progress),
                )
        except (paramiko.SSHException, OSError, EOFError) as error:
            stderr.extend(str(error).encode())
        return stderr.decode(errors="replace").strip()

    def _ready(self) -> tuple[str, ...]:
        """Return how `timeout` is called; FarmError names what the board lacks.

        The work folder is made, and must be ours alone to write to.
        """
        text = f"set -- {shlex.quote(self.workdir)}; {ssh_ready.SCRIPT}"
        result = self._say(text, ["sh"], READY_S, 1 << 20)
        if not result.ok:
            raise FarmError(
                f"{self.board}: its work folder cannot be used: {result.describe()}; give the "
                "board another workdir"
            )
        answer = result.stdout.decode(errors="replace")
        return ssh_ready.read_ready(answer, self.board, self.workdir)

    def _lost(self, argv: Sequence[str], reason: str) -> BoardUnreachable:
        return BoardUnreachable(f"{self.board}: connection lost in {argv[0]!r}: {reason}")


def _host_key(address: SshAddress) -> paramiko.PKey:
    try:
        entry = paramiko.hostkeys.HostKeyEntry.from_line(f"board {address.host_key}")
    except (paramiko.SSHException, ValueError):
        entry = None
    if entry is None or entry.key is None:
        raise FarmError(
            f"{address.board}: host_key is not a public key: {address.host_key!r}; "
            f"give the line that ssh-keyscan prints, without the host name"
        )
    return entry.key


def _client_key(address: SshAddress) -> paramiko.PKey:
    """Read a private key of any kind that SSH has: ed25519, ECDSA or RSA."""
    where = f"{address.board}: cannot use the key {address.key_file}"
    try:
        return paramiko.PKey.from_path(address.key_file)
    except (paramiko.PasswordRequiredException, TypeError):  # TypeError: cryptography
        raise FarmError(
            f"{where}: it has a passphrase, and no one can type it: create a key without one, by "
            'ssh-keygen -t ed25519 -N ""'
        ) from None
    except (OSError, ValueError, paramiko.SSHException, UnknownKeyType) as error:
        raise FarmError(
            f"{where}: {reason_of(error) or 'it is no private key'}; make one by "
            "ssh-keygen -t ed25519"
        ) from None


def _refusal(address: SshAddress, error: Exception) -> BoardUnreachable:
    """Explain an error in the terms of the board's description."""
    place = f"{address.board} at {address.host}:{address.port}"
    if isinstance(error, paramiko.BadHostKeyException):
        return BoardRefused(
            f"{place} has the host key {error.key.fingerprint}, not the pinned "
            f"{error.expected_key.fingerprint}; another machine answers there, or the board was "
            f"set up again: then change host_key in its description"
        )
    if isinstance(error, paramiko.AuthenticationException):
        return BoardRefused(f"{place} refuses {address.user}'s key {address.key_file}: {error}")
    if isinstance(error, TimeoutError | socket.timeout):
        return BoardUnreachable(f"{place} does not answer: timed out")
    return BoardUnreachable(f"{place} does not answer: {error or type(error).__name__}")
