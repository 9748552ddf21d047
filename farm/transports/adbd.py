"""The device's side of adb's protocol: connections, authentication, streams.

Written after Android's own description, system/core/adb/protocol.txt and SERVICES.TXT. A client
proves that it has the one accepted key; otherwise any user of this machine could run commands.
`adbd_services.py` implements the services of streams.
"""

import contextlib
import itertools
import os
import queue
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

HEADER = struct.Struct("<6I")
VERSION = 0x01000001  # no checksums
MOST_DATA = 256 << 10
TOKEN_BYTES = 20
TOKEN, SIGNATURE = 1, 2


class Command(IntEnum):
    """Kinds of messages: four letters, little-endian."""

    CNXN = int.from_bytes(b"CNXN", "little")
    AUTH = int.from_bytes(b"AUTH", "little")
    OPEN = int.from_bytes(b"OPEN", "little")
    OKAY = int.from_bytes(b"OKAY", "little")
    WRTE = int.from_bytes(b"WRTE", "little")
    CLSE = int.from_bytes(b"CLSE", "little")


class Channel(Protocol):
    """One stream, as a service sees it."""

    def read(self) -> bytes:
        """Return what the client sent next; empty once it has closed the stream."""

    def write(self, data: bytes) -> None:
        """Send data; BrokenPipeError once the client has closed the stream."""

    def on_close(self, action: Callable[[], object]) -> None:
        """Call `action` when the client closes the stream."""


Service = Callable[[str, Channel], None]
"""Serves a stream, selected by the text after the colon of its name, until it returns."""


@dataclass(frozen=True)
class Identity:
    """The device's properties, and the check of a client's signature of a token."""

    properties: Mapping[str, str]
    is_signed: Callable[[bytes, bytes], bool]
    services: Mapping[str, Service]

    def banner(self) -> bytes:
        """Return the text of its CNXN message."""
        parts = [f"{name}={value};" for name, value in self.properties.items()]
        return f"device::{''.join(parts)}features=shell_v2,cmd".encode()


class Connection:
    """One client over one socket; `serve` returns when it has gone."""

    def __init__(self, connection: socket.socket, identity: Identity) -> None:
        self._socket = connection
        self._identity = identity
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._streams: dict[int, _Stream] = {}
        self._token = os.urandom(TOKEN_BYTES)
        self._trusted = False

    def serve(self) -> None:
        """Answer messages until the client has gone; then end all streams."""
        with contextlib.suppress(OSError, ValueError, struct.error):
            while True:
                self._take(*self._receive())
        for stream in list(self._streams.values()):
            stream.end()
        self.close()

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def send(self, command: Command, first: int, second: int, data: bytes = b"") -> None:
        """Send a message."""
        total = sum(data) & 0xFFFFFFFF
        header = HEADER.pack(command, first, second, len(data), total, command ^ 0xFFFFFFFF)
        with self._sending:
            self._socket.sendall(header + data)

    def forget(self, number: int) -> None:
        """Close a stream whose service has ended."""
        stream = self._streams.pop(number, None)
        if stream is not None:
            with contextlib.suppress(OSError):
                self.send(Command.CLSE, number, stream.remote)

    def _receive(self) -> tuple[Command, int, int, bytes]:
        command, first, second, size, _, magic = HEADER.unpack(self._exactly(HEADER.size))
        if command ^ 0xFFFFFFFF != magic or size > MOST_DATA:
            raise ValueError("no message of adb")
        return Command(command), first, second, self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return bytes(data)

    def _take(self, command: Command, first: int, second: int, data: bytes) -> None:
        if command is Command.CNXN:
            self._challenge()
        elif command is Command.AUTH:
            self._authenticate(first, data)
        elif self._trusted and command is Command.OPEN:
            self._open(first, data)
        elif (stream := self._streams.get(second)) is not None:
            if command is Command.WRTE:
                self.send(Command.OKAY, second, first)
                stream.incoming.put(data)
            elif command is Command.OKAY:
                stream.ready.release()
            elif command is Command.CLSE:
                self._streams.pop(second, None)
                stream.end()

    def _challenge(self) -> None:
        self.send(Command.AUTH, TOKEN, 0, self._token)

    def _authenticate(self, kind: int, data: bytes) -> None:
        """Trust a client that signed the token; ignore a public key, which would need consent."""
        if kind != SIGNATURE:
            return
        if self._identity.is_signed(self._token, data):
            self._trusted = True
            self.send(Command.CNXN, VERSION, MOST_DATA, self._identity.banner())
        else:
            self._token = os.urandom(TOKEN_BYTES)
            self._challenge()

    def _open(self, remote: int, data: bytes) -> None:
        name = data.rstrip(b"\0").decode(errors="surrogateescape")
        kind, _, parameter = name.partition(":")
        service = self._identity.services.get(kind.partition(",")[0])
        if service is None:
            return self.send(Command.CLSE, 0, remote)
        number = next(self._numbers)
        stream = self._streams[number] = _Stream(self, number, remote)
        self.send(Command.OKAY, number, remote)
        argument = parameter if kind.partition(",")[0] != "shell" else f"{kind}:{parameter}"
        threading.Thread(target=stream.serve, args=(service, argument), daemon=True).start()


@dataclass
class _Stream:
    """One stream: received data, and one permit to send at a time."""

    connection: Connection
    number: int
    remote: int
    incoming: "queue.Queue[bytes]" = field(default_factory=queue.Queue)
    ready: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1))
    closed: bool = False
    actions: list[Callable[[], object]] = field(default_factory=list)

    def read(self) -> bytes:
        return self.incoming.get()

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), MOST_DATA):
            self.ready.acquire()
            if self.closed:
                self.ready.release()
                raise BrokenPipeError
            piece = data[start : start + MOST_DATA]
            self.connection.send(Command.WRTE, self.number, self.remote, piece)

    def on_close(self, action: Callable[[], object]) -> None:
        self.actions.append(action)
        if self.closed:
            action()

    def serve(self, service: Service, argument: str) -> None:
        with contextlib.suppress(OSError):
            service(argument, self)
            self._drain()
        self.connection.forget(self.number)

    def end(self) -> None:
        """Wake the service after its client has disconnected."""
        self.closed = True
        self.incoming.put(b"")
        self.ready.release()
        for action in self.actions:
            action()

    def _drain(self) -> None:
        """Wait until the client has confirmed the last data."""
        self.ready.acquire()
        self.ready.release()
