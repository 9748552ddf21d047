"""Services of an emulated phone for adb: commands with their status, and files.

Formats: system/core/adb/shell_protocol.h and SYNC.TXT.
"""

import contextlib
import os
import signal
import stat
import struct
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pockengine.farm.transports.adbd import Channel, Service
from pockengine.farm.transports.lifetime import ending_with_us

PACKET = struct.Struct("<BI")
SYNC = struct.Struct("<4sI")
STAT = struct.Struct("<4s3I")
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)
CHUNK = 64 << 10


def services(folder: Path, environment: Mapping[str, str]) -> dict[str, Service]:
    """Return the services of a phone whose commands start in `folder`."""

    def shell(argument: str, channel: Channel) -> None:
        kind, _, command = argument.partition(":")
        run_shell(command, "v2" in kind.split(","), channel, folder=folder, environment=environment)

    return {"shell": shell, "exec": shell, "sync": serve_files}


def run_shell(
    command: str, framed: bool, channel: Channel, folder: Path, environment: Mapping[str, str]
) -> None:
    """Run a command by `sh`; `framed` streams carry both outputs and the status."""
    with subprocess.Popen(
        ending_with_us(["sh", "-c", command]),
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if framed else subprocess.STDOUT,
        start_new_session=True,
    ) as child:
        channel.on_close(lambda: _kill(child))
        threading.Thread(target=_feed, args=(channel, child.stdin, framed), daemon=True).start()
        streams = [(child.stdout, STDOUT), (child.stderr, STDERR)]
        pumps = [
            threading.Thread(target=_pump, args=(stream, channel, kind if framed else None))
            for stream, kind in streams
            if stream is not None
        ]
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        status = child.wait()
        if framed:
            code = status if status >= 0 else 128 - status
            channel.write(PACKET.pack(EXIT, 1) + bytes([code & 0xFF]))


def _kill(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _feed(channel: Channel, stdin: IO[bytes], framed: bool) -> None:
    """Forward a command's input until the client or the command ends it."""
    reader = Reader(channel)
    with contextlib.suppress(OSError, EOFError), stdin:
        while True:
            if not framed:
                stdin.write(reader.some())
            else:
                kind, size = PACKET.unpack(reader.exactly(PACKET.size))
                data = reader.exactly(size)
                if kind == CLOSE_STDIN:
                    return
                if kind == STDIN:
                    stdin.write(data)
            stdin.flush()


def _pump(stream: IO[bytes], channel: Channel, kind: int | None) -> None:
    """Forward an output until it ends or its reader has gone."""
    with contextlib.suppress(OSError):
        while data := os.read(stream.fileno(), CHUNK):
            channel.write(data if kind is None else PACKET.pack(kind, len(data)) + data)


class Reader:
    """Reads exact amounts from a stream; EOFError once the client has closed it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._buffer = bytearray()

    def exactly(self, size: int) -> bytes:
        """Return exactly `size` bytes."""
        while len(self._buffer) < size:
            self._buffer += self._next()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def some(self) -> bytes:
        """Return what comes next."""
        return self.exactly(len(self._buffer)) if self._buffer else self._next()

    def _next(self) -> bytes:
        data = self._channel.read()
        if not data:
            raise EOFError
        return data


def serve_files(_: str, channel: Channel) -> None:
    """Serve requests for files until the client quits."""
    reader = Reader(channel)
    with contextlib.suppress(EOFError):
        while True:
            kind, size = SYNC.unpack(reader.exactly(SYNC.size))
            answer = REQUESTS.get(kind)
            if answer is None:
                return
            request = FileRequest(reader, channel, reader.exactly(size))
            try:
                answer(request)
            except OSError as error:
                request.fail(error.strerror or str(error))


@dataclass(frozen=True)
class FileRequest:
    """One request: the stream, and its argument, mostly a path."""

    reader: Reader
    channel: Channel
    argument: bytes

    def fail(self, reason: str) -> None:
        """Answer with an error."""
        text = reason.encode()
        self.channel.write(SYNC.pack(b"FAIL", len(text)) + text)


def _stat(request: FileRequest) -> None:
    try:
        found = os.lstat(request.argument)
        values = (found.st_mode, found.st_size & 0xFFFFFFFF, int(found.st_mtime) & 0xFFFFFFFF)
    except OSError:
        values = (0, 0, 0)
    request.channel.write(STAT.pack(b"STAT", *values))


def _receive(request: FileRequest) -> None:
    with open(request.argument, "rb") as stream:
        while data := stream.read(CHUNK):
            request.channel.write(SYNC.pack(b"DATA", len(data)) + data)
    request.channel.write(SYNC.pack(b"DONE", 0))


def _send(request: FileRequest) -> None:
    """Write a file; after an error the client's data are read, and the error answered."""
    path, _, mode = request.argument.rpartition(b",")
    failure: OSError | None = None
    with contextlib.ExitStack() as stack:
        stream = None
        try:
            stream = stack.enter_context(open(path, "wb"))
        except OSError as error:
            failure = error
        while True:
            kind, size = SYNC.unpack(request.reader.exactly(SYNC.size))
            if kind == b"DONE":
                break
            data = request.reader.exactly(size)
            if stream is not None and failure is None:
                try:
                    stream.write(data)
                except OSError as error:
                    failure = error
    if failure is not None:
        raise failure
    os.chmod(path, stat.S_IMODE(int(mode)) | stat.S_IRUSR | stat.S_IWUSR)
    request.channel.write(SYNC.pack(b"OKAY", 0))


REQUESTS: Mapping[bytes, Callable[[FileRequest], None]] = {
    b"STAT": _stat,
    b"RECV": _receive,
    b"SEND": _send,
}
