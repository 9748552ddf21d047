"""Add a board to the inventory: fetch its host key, log in with it pinned, and identify it.

The user confirms the key before it is trusted; there is no silent trust on first use.
"""

import base64
import hashlib
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import paramiko

from pockengine.devices import known_devices, load_device
from pockengine.errors import BoardUnreachable, FarmError
from pockengine.farm.boards.board import AdbPhone, Board, Remote
from pockengine.farm.boards.connect import connect
from pockengine.farm.boards.facts import BoardFacts, ask, recognize
from pockengine.farm.transports.adb_client import WORKDIR
from pockengine.farm.transports.ssh import LOG

TIMEOUT_S = 10.0
PHONE = "adb://"
ADDRESS = re.compile(r"ssh://(?:([^@/:\s]+)@)?(\[[0-9a-fA-F:.]+\]|[^@/:\[\]\s]+)(?::(\d{1,5}))?/?")


@dataclass(frozen=True)
class Login:
    """Address and login of a board."""

    user: str
    host: str
    port: int

    @staticmethod
    def parse(text: str) -> "Login":
        """Parse ssh://user@host:port; FarmError for anything else, including a password."""
        match = ADDRESS.fullmatch(text)
        if not match or (match[3] and not 0 < int(match[3]) < 1 << 16):
            raise FarmError(
                "not an address: give ssh://user@host, ssh://user@host:port or adb://SERIAL"
            )
        host = match[2].strip("[]")
        if host.startswith("-") or (match[1] or "").startswith("-"):
            raise FarmError("not an address: neither user nor host begins with a dash")
        return Login(match[1] or "root", host, int(match[3] or 22))


@dataclass(frozen=True)
class Wishes:
    """The user's settings for a board; the device may be detected.

    `key_file` is for SSH; `workdir` defaults to that of the board's kind.
    """

    key_file: str = ""
    name: str | None = None
    device: str | None = None
    tags: tuple[str, ...] = ()
    power: tuple[str, ...] = ()
    console: str = ""
    launcher: tuple[str, ...] = ()
    workdir: str | None = None


def enroll(
    login: Login, wishes: Wishes, confirm: Callable[[str, str], bool]
) -> tuple[Board, BoardFacts]:
    """Return the board's entry and its facts.

    `confirm` is called with the host key's line and its fingerprint; FarmError if it returns false,
    or if neither the board nor the user identifies the device. DeviceError for an unknown device.
    """
    _check_device(wishes)
    line = fetch_host_key(login)
    if not confirm(line, fingerprint(line)):
        raise FarmError(f"{login.host}: its host key was not accepted; nothing was written")
    name = _name(wishes, login.host)
    place = Remote(
        host=login.host,
        user=login.user,
        key_file=wishes.key_file,
        host_key=line,
        port=login.port,
        workdir=wishes.workdir or Remote.workdir,
        power=wishes.power,
        console=wishes.console,
        launcher=wishes.launcher,
    )
    return _identified(name, place, wishes)


def enroll_phone(serial: str, wishes: Wishes) -> tuple[Board, BoardFacts]:
    """Return a phone's board entry and its facts; raises the errors of `enroll`.

    The phone itself asks its user whether to trust this computer.
    """
    _check_device(wishes)
    place = AdbPhone(serial, wishes.workdir or WORKDIR)
    return _identified(_name(wishes, serial), place, wishes)


def _check_device(wishes: Wishes) -> None:
    if wishes.device is not None:
        load_device(wishes.device)


def _name(wishes: Wishes, address: str) -> str:
    return wishes.name or re.sub(r"[^A-Za-z0-9_.-]", "-", address).strip("-.") or "board"


def _identified(name: str, place: Remote | AdbPhone, wishes: Wishes) -> tuple[Board, BoardFacts]:
    """Connect to a board and name its device."""
    with connect(Board(name, "unknown", place)) as transport:
        facts = ask(transport)
    device = wishes.device or recognize(facts)
    if device is None:
        known = "; ".join(facts.describe())
        raise FarmError(
            f"{name} is no device that we know ({known}); say which: --device NAME, of "
            f"{', '.join(known_devices())}"
        )
    return Board(name, device, place, wishes.tags), facts


def fetch_host_key(login: Login) -> str:
    """Return the server's host key in known_hosts form, without logging in."""
    try:
        connection = socket.create_connection((login.host, login.port), TIMEOUT_S)
        with closing(connection), closing(paramiko.Transport(connection)) as transport:
            transport.set_log_channel(LOG)
            transport.banner_timeout = TIMEOUT_S
            _prefer_ed25519(transport)
            transport.start_client(timeout=TIMEOUT_S)
            key = transport.get_remote_server_key()
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise BoardUnreachable(
            f"{login.host}:{login.port} shows no host key: {error or 'it hung up'}"
        ) from None
    return f"{key.get_name()} {key.get_base64()}"


def fingerprint(line: str) -> str:
    """Return a key's fingerprint as ssh-keygen -l prints it."""
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def _prefer_ed25519(transport: paramiko.Transport) -> None:
    """Request the host's ed25519 key first, the type used in the farm's own files."""
    options = transport.get_security_options()
    kinds: Sequence[str] = options.key_types
    options.key_types = sorted(kinds, key=lambda kind: kind != "ssh-ed25519")


def default_key() -> Path | None:
    """Return the user's SSH key of the best type; None without one."""
    names = ("id_ed25519", "id_ecdsa", "id_rsa")
    keys = (Path("~/.ssh").expanduser() / name for name in names)
    return next((key for key in keys if key.is_file()), None)
