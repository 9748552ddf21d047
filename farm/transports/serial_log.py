"""Listen to a serial console: a device of this machine, or a server that has one (ser2net).

A thread stores the last megabyte of output. Nothing is ever sent.
"""

import os
import select
import socket
import termios
import threading
import tty
from urllib.parse import urlsplit

from pockengine.errors import FarmError, reason_of

MOST_BYTES = 1 << 20  # bytes
CONNECT_TIMEOUT_S = 5.0


class SerialLog:
    """An open console; `text` is its output so far."""

    def __init__(self, place: str, board: str) -> None:
        """Open "/dev/ttyUSB0" (115200 baud, raw) or "tcp://host:port"; FarmError when it cannot."""
        try:
            self._handle = _open_tcp(place) if place.startswith("tcp://") else _open_tty(place)
        except (OSError, ValueError, termios.error) as error:
            raise FarmError(
                f"{board}: cannot listen to its console {place}: {reason_of(error)}"
            ) from None
        self._text = bytearray()
        self._lock = threading.Lock()
        self._wake, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Return the output so far."""
        with self._lock:
            return self._text.decode(errors="replace")

    def close(self) -> None:
        """Stop listening; a second call does nothing."""
        if self._waker >= 0:
            os.close(self._waker)
            self._waker = -1
            self._thread.join()
            for handle in (self._handle, self._wake):
                os.close(handle)

    def _listen(self) -> None:
        while True:
            ready, _, _ = select.select([self._handle, self._wake], [], [])
            if self._wake in ready:
                return
            try:
                data = os.read(self._handle, 1 << 16)
            except OSError:  # unplugged
                return
            if not data:
                return
            with self._lock:
                self._text += data
                del self._text[:-MOST_BYTES]


def _open_tcp(place: str) -> int:
    parts = urlsplit(place)
    if not parts.hostname or not parts.port:
        raise ValueError("give tcp://host:port")
    with socket.create_connection((parts.hostname, parts.port), CONNECT_TIMEOUT_S) as connection:
        connection.settimeout(None)
        return connection.detach()


def _open_tty(place: str) -> int:
    handle = os.open(place, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        tty.setraw(handle)
        settings = termios.tcgetattr(handle)
        settings[4] = settings[5] = termios.B115200
        termios.tcsetattr(handle, termios.TCSANOW, settings)
        os.set_blocking(handle, True)
    except BaseException:
        os.close(handle)
        raise
    return handle
