"""A board over SSH: one pinned host key, one client key, time-outs on everything.

Not done on purpose: passwords, agents, keys from ~/.ssh, host keys accepted on first use. Files go
into a store on the board that is addressed by content (`cas/<sha256>`) and are hard-linked to where
they are wanted, so that a file which the board has already is not sent again.
"""

import logging
import math
import re
import shlex
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import paramiko

from pockengine.errors import BoardRefused, BoardUnreachable, FarmError, JobFailed
from pockengine.farm.transports.digest import printed_sha256, sha256_of
from pockengine.farm.transports.limits import NO_LIMITS, Limits
from pockengine.farm.transports.ssh_ending import EndingTransport
from pockengine.farm.transports.transport import Progress, RunResult

KEEP_ALIVE_S = 5
GRACE_S = 10.0  # how much longer than the board's own time-out we wait for its answer
POLL_S = 0.01
LOG = "pockengine.farm.transports.ssh"
COUNT = re.compile(rb"\s*(\d{1,18})\s")
FREE = re.compile(rb"\s\d{1,18}\s+\d{1,18}\s+(\d{1,18})\s+\d{1,3}%\s[^\n]*\n?\Z")  # df -P
# Make the work folder ours, or find that it is: nobody else may write there, or have made it.
OWN_FOLDER = r"""
[ -d "$1" ] || (umask 077 && mkdir -p -- "$1") || exit 1
if [ -L "$1" ] || ! [ -O "$1" ]; then
  echo "$1 is a link, or belongs to another user" >&2; exit 1
fi
case $(ls -ld -- "$1") in
  d????-??-*) mkdir -p -- "$1/cas" ;;
  *) echo "$1 can be written by other users: chmod go-w it" >&2; exit 1 ;;
esac
"""

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
    """Log in; BoardUnreachable when nobody answers, the key is refused or the host is another."""
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
    """An open SSH connection to a board; see transport.Transport for what it promises."""

    def __init__(self, address: SshAddress, client: paramiko.SSHClient) -> None:
        self.board = address.board
        self.workdir = address.workdir
        self._client = client
        transport = client.get_transport()
        assert isinstance(transport, EndingTransport)  # connect() was told to make one
        transport.set_keepalive(KEEP_ALIVE_S)
        self._transport = transport
        self._own_folder()
        self._sftp = client.open_sftp()
        channel = self._sftp.get_channel()
        assert channel is not None  # the session is open
        channel.settimeout(30.0)

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        limits: Limits = NO_LIMITS,
    ) -> RunResult:
        """Run a command under the board's own `timeout`, which outlives a lost connection."""
        limit = str(max(1, math.ceil(timeout_s)))
        folder = shlex.quote(cwd or "/")
        command = shlex.join(["timeout", "-s", "KILL", limit, *argv])
        line = f"cd {folder} && {{ {limits.shell()}exec {command}; }}"
        start = time.monotonic()
        try:
            with self._transport.open_session(timeout=GRACE_S) as channel:
                channel.exec_command(line)
                output = _Output(f"{self.board}: {argv[0]!r}", limits.output_bytes)
                _collect(channel, start + timeout_s + GRACE_S, output)
                status = channel.recv_exit_status() if channel.exit_status_ready() else -1
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost(argv, str(error)) from None
        took = time.monotonic() - start
        signal = self._transport.ending(channel) if status == -1 else None
        if status == -1 and signal is None:
            raise self._lost(argv, "no exit status came")
        if took >= timeout_s and (signal == "SIGKILL" or status in (124, 137)):
            raise JobFailed(
                f"{self.board}: {argv[0]!r} did not end within {timeout_s:g} s and was killed"
            )
        code = None if signal else status
        return RunResult(
            tuple(argv), code, signal, bytes(output.stdout), bytes(output.stderr), took
        )

    def put(self, source: Path, target: str, progress: Progress | None = None) -> bool:
        """Send a file unless the board's store has it, then link it to where it is wanted."""
        digest = sha256_of(source)
        stored = f"{self.workdir}/cas/{digest}"
        absent = self._digest(stored) != digest
        if absent:
            self._send(source, stored, digest, progress)
        self._expect(["ln", "-f", stored, target])
        return absent

    def get(self, source: str, target: Path) -> None:
        """Fetch a file through a temporary name and compare its hash with the board's."""
        part = target.with_name(f".{target.name}.part")
        try:
            self._sftp.get(source, str(part))
            expected, actual = self._digest(source), sha256_of(part)
            if expected != actual:
                raise FarmError(
                    f"{self.board}: download of {source} arrived damaged: "
                    f"sha256 {actual} instead of {expected}; fetch it again"
                )
            part.replace(target)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise FarmError(f"{self.board}: cannot download {source}: {error}") from None
        finally:
            part.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _send(self, source: Path, stored: str, digest: str, progress: Progress | None) -> None:
        """Upload to a temporary name, compare size and hash, then rename in one step."""
        size = source.stat().st_size
        part = f"{stored}.{token_hex(4)}.part"
        self._check_room(source, part, size)
        reason = ""
        try:
            with source.open("rb") as stream:
                self._sftp.putfo(stream, part, size, progress, confirm=False)
        except (paramiko.SSHException, OSError, EOFError) as error:
            reason = f" ({error})"
        if self._digest(part) != digest:
            self._refuse(source, part, size, reason)
        try:
            self._sftp.chmod(part, 0o755)
            self._sftp.posix_rename(part, stored)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise FarmError(f"{self.board}: cannot store {source} in {stored}: {error}") from None

    def _refuse(self, source: Path, part: str, size: int, reason: str) -> None:
        """Remove a part that did not arrive whole and raise why: a full disk, or damage."""
        there = COUNT.match(self.run(["wc", "-c", part]).stdout)
        arrived = int(there[1]) if there else 0
        self.run(["rm", "-f", part])
        self._check_room(source, part, size)
        raise FarmError(
            f"{self.board}: upload of {source} arrived damaged{reason}: {arrived} of {size} bytes, "
            f"with another sha256; run again"
        )

    def _digest(self, path: str) -> str | None:
        result = self.run(["sha256sum", path], timeout_s=300)
        return printed_sha256(result.stdout) if result.ok else None

    def _check_room(self, source: Path, part: str, size: int) -> None:
        """Raise FarmError when `df` says that fewer than `size` bytes are free beside `part`."""
        folder = part.rpartition("/")[0]
        table = self._expect(["df", "-P", "-k", folder]).stdout
        row = FREE.search(table)
        if row is None:
            raise FarmError(f"{self.board}: df says {table[:80]!r} of {folder}, which is no table")
        free = int(row[1]) * 1024
        if free < size:
            raise FarmError(
                f"{self.board}: disk full: {source.name} needs {size} bytes in {folder}, "
                f"{free} are free; remove files there or use a board with a larger disk"
            )

    def _own_folder(self) -> None:
        """Make the work folder; FarmError when it is not ours alone to write to."""
        result = self.run(["sh", "-c", OWN_FOLDER, "own", self.workdir])
        if not result.ok:
            raise FarmError(
                f"{self.board}: its work folder cannot be used: {result.describe()}; give the "
                "board another workdir"
            )

    def _lost(self, argv: Sequence[str], reason: str) -> BoardUnreachable:
        return BoardUnreachable(f"{self.board}: connection lost in {argv[0]!r}: {reason}")

    def _expect(self, argv: Sequence[str]) -> RunResult:
        result = self.run(argv)
        if not result.ok:
            raise FarmError(f"{self.board}: {shlex.join(argv)}: {result.describe()}")
        return result


class _Output:
    """What a command printed so far; JobFailed when a stream grows beyond the limit."""

    def __init__(self, what: str, limit: int) -> None:
        self._what = what
        self._limit = limit
        self.stdout = bytearray()
        self.stderr = bytearray()

    def take(self, channel: paramiko.Channel) -> None:
        while channel.recv_ready():
            self._add(self.stdout, channel.recv(1 << 16))
        while channel.recv_stderr_ready():
            self._add(self.stderr, channel.recv_stderr(1 << 16))

    def _add(self, stream: bytearray, data: bytes) -> None:
        stream += data
        if len(stream) > self._limit:
            raise JobFailed(f"{self._what} printed more than {self._limit} bytes and was stopped")


def _collect(channel: paramiko.Channel, deadline: float, output: _Output) -> None:
    """Read both streams until the command has ended and everything has arrived."""
    while True:
        done = channel.closed or (channel.eof_received and channel.exit_status_ready())
        output.take(channel)
        if done:
            return
        if time.monotonic() > deadline:
            raise paramiko.SSHException("the board stopped answering")
        time.sleep(POLL_S)


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
    try:
        return paramiko.Ed25519Key.from_private_key_file(str(address.key_file))
    except (OSError, paramiko.SSHException) as error:
        raise FarmError(
            f"{address.board}: cannot read the ed25519 key {address.key_file}: {error}; "
            f"make one with ssh-keygen -t ed25519"
        ) from None


def _refusal(address: SshAddress, error: Exception) -> BoardUnreachable:
    """Say what went wrong in the terms of the board's description."""
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
