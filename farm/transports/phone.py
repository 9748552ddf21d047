"""An emulated phone: a daemon that speaks adb's protocol on loopback, with its own adb server.

As with a real phone, `adb` sends files, starts programs and fetches results. The board's launcher
runs programs under QEMU user mode; commands are this machine's. The adb server
listens on a socket in a private folder, so that the user's own server and phones stay as they are.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from pockengine.errors import FarmError
from pockengine.farm.transports.adb import AdbTransport
from pockengine.farm.transports.adb_client import WORKDIR, AdbAddress, AdbClient, server_command
from pockengine.farm.transports.adbd import Connection, Identity
from pockengine.farm.transports.adbd_services import services
from pockengine.farm.transports.lifetime import ending_with_us

KEY_BITS = 2048
SERVER_S = 20.0
MOST_FOLDER = 64
"""Characters: with a name in it the path of a socket has 107 at most."""
PROPERTIES = {
    "ro.product.manufacturer": "PockEngine",
    "ro.product.model": "emulated phone",
    "ro.product.cpu.abi": "arm64-v8a",
    "ro.build.version.release": "14",
    "sys.boot_completed": "1",
}
BANNER = {
    "ro.product.name": "pockengine",
    "ro.product.model": "emulated_phone",
    "ro.product.device": "pockengine",
}


class Phone:
    """A phone on loopback, whose commands are found in `path`, by default this machine's."""

    def __init__(self, board: str, path: str | None = None) -> None:
        self._board = board
        long = len(tempfile.gettempdir()) > MOST_FOLDER
        self.home = Path(tempfile.mkdtemp(prefix="pockengine-phone-", dir="/tmp" if long else None))
        self._key = _write_key(self.home / ".android" / "adbkey")
        self._connections: list[Connection] = []
        self._listener: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._port = 0
        (self.home / WORKDIR.strip("/")).parent.mkdir(parents=True)
        _write_getprop(self.home / "bin")
        self._path = f"{self.home}/bin{os.pathsep}{path or os.environ['PATH']}"

    @property
    def address(self) -> AdbAddress:
        """Where adb finds it."""
        return AdbAddress(
            board=self._board,
            serial=f"127.0.0.1:{self._port}",
            workdir=f"{self.home}{WORKDIR}",
            socket=f"localfilesystem:{self.home}/adb",
            environment={"HOME": str(self.home), "ADB_EMU": "0", "ADB_MDNS": "0", "ADB_USB": "0"},
        )

    def open(self, launcher: Sequence[str] = ()) -> AdbTransport:
        """Switch it on, start its adb server and connect."""
        self.switch_on()
        command = ending_with_us(server_command(self.address))
        environment = {**os.environ, **self.address.environment}
        with (self.home / "server.log").open("wb") as log:
            self._server = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._wait_for_server()
        return AdbTransport(self.address, launcher)

    def switch_on(self) -> None:
        """Listen, always at the same port."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def switch_off(self) -> None:
        """Close all connections and stop listening."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()
            self._listener = None
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def close(self) -> None:
        """End the adb server, also one that adb started again, and remove every file."""
        if self._server is not None:
            AdbClient(self.address).end_server()
            self._server.kill()
            self._server.wait()
        self.switch_off()
        shutil.rmtree(self.home, ignore_errors=True)

    def _wait_for_server(self) -> None:
        """Wait until the server listens: otherwise adb would start a second one on the socket."""
        deadline = time.monotonic() + SERVER_S
        while time.monotonic() < deadline:
            with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
                probe.connect(str(self.home / "adb"))
                return
            time.sleep(0.01)
        log = (self.home / "server.log").read_text(errors="replace")
        raise FarmError(f"{self._board}: its adb server does not start: {log.strip()[-300:]}")

    def _accept(self, listener: socket.socket) -> None:
        environment = {**os.environ, "PATH": self._path}
        identity = Identity(BANNER, self._is_signed, services(self.home, environment))
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return  # switched off
            connection = Connection(accepted, identity)
            self._connections.append(connection)
            threading.Thread(target=connection.serve, daemon=True).start()

    def _is_signed(self, token: bytes, signature: bytes) -> bool:
        try:
            scheme = Prehashed(hashes.SHA1())  # adb signs the token as if it were a hash
            self._key.verify(signature, token, padding.PKCS1v15(), scheme)
        except InvalidSignature:
            return False
        return True


def _write_key(path: Path) -> rsa.RSAPublicKey:
    """Make the key that adb signs with; return its public half."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.parent.mkdir(parents=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(text)
    return key.public_key()


def _write_getprop(folder: Path) -> None:
    """Write the command of Android that this machine lacks."""
    folder.mkdir()
    lines = [f"{name}={value}" for name, value in PROPERTIES.items()]
    (folder / "properties").write_text("\n".join(lines) + "\n")
    getprop = folder / "getprop"
    getprop.write_text(f'#!/bin/sh\nsed -n "s/^$1=//p" {folder}/properties\n')
    getprop.chmod(0o755)
