"""Board descriptions: a name, a device, a place, and tags. Data only.

Boards are read from TOML inventories: the user's own file takes precedence over `boards.toml`
beside this file. `connect.py` opens a board, `inventory.py` writes an entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pockengine.devices import known_devices, load_device
from pockengine.errors import FarmError, reason_of
from pockengine.farm.names import check_name
from pockengine.farm.transports.adb_client import WORKDIR
from pockengine.files import read_toml
from pockengine.folders import config_folder
from pockengine.tables import from_table

BUILT_IN = Path(__file__).parent / "boards.toml"


@dataclass(frozen=True)
class Local:
    """This machine."""


@dataclass(frozen=True)
class Emulated:
    """A QEMU machine from the device file, booted for the job.

    It has no disk: files occupy at most `disk_mb` of its memory.
    """

    disk_mb: int


@dataclass(frozen=True)
class UserEmulated:
    """A processor without an operating system: a DSP or microcontroller by QEMU, wasm32 by Node.

    Like a DSP, it is reached through a host: here one that answers SSH on loopback and
    starts the programs on it.
    """


@dataclass(frozen=True)
class Remote:
    """A machine that answers SSH; `host_key` is the only host key accepted from it.

    `power` is a command on this machine, which gets "on", "off" or "cycle" as its last argument.
    `console` is a serial device ("/dev/ttyUSB0", 115200 baud) or its TCP server
    ("tcp://host:port"). `launcher` is the command that starts programs for another processor, such
    as a DSP.
    """

    host: str
    user: str
    key_file: str
    host_key: str
    port: int = 22
    workdir: str = "/tmp/pockengine"
    power: tuple[str, ...] = ()
    console: str = ""
    launcher: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_workdir(self.workdir)


@dataclass(frozen=True)
class AdbPhone:
    """A phone reached by adb: a serial number as in `adb devices`, or host:port."""

    serial: str
    workdir: str = WORKDIR

    def __post_init__(self) -> None:
        _check_workdir(self.workdir)


def _check_workdir(path: str) -> None:
    if not path.startswith("/"):
        raise FarmError(f"workdir {path!r} is no absolute path; give one such as /var/tmp/jobs")


@dataclass(frozen=True)
class EmulatedPhone:
    """A loopback daemon that speaks adb's protocol; programs run under QEMU user mode."""


Place = Local | Emulated | UserEmulated | Remote | AdbPhone | EmulatedPhone
Kind = (
    type[Local]
    | type[Emulated]
    | type[UserEmulated]
    | type[Remote]
    | type[AdbPhone]
    | type[EmulatedPhone]
)
KINDS: dict[str, Kind] = {
    "local": Local,
    "emulated": Emulated,
    "user-emulated": UserEmulated,
    "ssh": Remote,
    "adb": AdbPhone,
    "emulated-phone": EmulatedPhone,
}


@dataclass(frozen=True)
class Board:
    """One machine of the farm."""

    name: str
    device: str
    place: Place
    tags: tuple[str, ...] = ()

    @property
    def emulated(self) -> bool:
        """Whether it is emulated; times measured on it are then meaningless."""
        return isinstance(self.place, Emulated | UserEmulated | EmulatedPhone)

    @property
    def on_shelf(self) -> bool:
        """Whether it is a separate physical machine, leased to one user at a time."""
        return isinstance(self.place, Remote | AdbPhone)

    @property
    def kind(self) -> str:
        """The kind of place, as the inventory spells it."""
        return next(name for name, kind in KINDS.items() if isinstance(self.place, kind))


def load_boards(files: Sequence[Path] | None = None) -> list[Board]:
    """Read boards, the user's first; the first of two boards with the same name wins."""
    if files is None:
        files = [own_file(), BUILT_IN] if own_file().is_file() else [BUILT_IN]
    boards: dict[str, Board] = {}
    for file in files:
        for name, entry in _read(file).items():
            boards.setdefault(name, _board(name, entry, file))
    return list(boards.values())


def board_for(device: str, boards: Sequence[Board]) -> Board:
    """Return the default board of a device, or the board with that name."""
    for board in boards:
        if device in (board.device, board.name):
            return board
    if device in known_devices():
        raise FarmError(_without_board(device))
    known = ", ".join(sorted({board.device for board in boards} | {b.name for b in boards}))
    raise FarmError(f"no board for device {device!r}; known devices and boards: {known}")


def _without_board(device: str) -> str:
    """Describe how to build for a device that has no board, and how to run the program."""
    built = "built and inspected, not run" if not load_device(device).runs else "built, not run"
    return (
        f"{device} has no board, emulated or real: programs for it are {built}. Build one by "
        f"`pockengine compile MODEL --device={device} --out=FOLDER`; a machine of this kind "
        f"that answers SSH becomes a board by `pockengine add ssh://USER@HOST --device={device}`, "
        f"one that answers adb by `pockengine add adb://SERIAL --device={device}`"
    )


def boards_for(name: str, boards: Sequence[Board], tags: Sequence[str] = ()) -> list[Board]:
    """Return all boards with this device or name and all the tags; FarmError if none match."""
    boards_of_device = [
        board
        for board in boards
        if name in (board.device, board.name) and set(tags) <= set(board.tags)
    ]
    if not boards_of_device and tags:
        raise FarmError(f"no board for {name!r} has the tags {', '.join(tags)}")
    return boards_of_device or [board_for(name, boards)]


def own_file() -> Path:
    """Return the path of the user's own boards file."""
    return config_folder() / "boards.toml"


def _read(file: Path) -> dict[str, object]:
    try:
        return read_toml(file)
    except (OSError, ValueError) as error:
        raise FarmError(f"{file}: cannot read the boards: {reason_of(error)}") from None


def _board(name: str, entry: object, file: Path) -> Board:
    """Build one board from its TOML table; the error names file, board and key."""
    where = f"{file}: board {name!r}"
    try:
        check_name(name, "board")
    except FarmError as error:
        raise FarmError(f"{file}: {error}") from None
    if not isinstance(entry, dict):
        raise FarmError(f"{where} must be a table, not {entry!r}")
    settings = dict(entry)
    device, kind, tags = (
        settings.pop("device", None),
        settings.pop("kind", None),
        settings.pop("tags", []),
    )
    if not isinstance(device, str):
        raise FarmError(f'{where} needs device = "...", the name of a file of devices/')
    if device not in known_devices():
        known = ", ".join(known_devices())
        raise FarmError(f"{where} has an unknown device {device!r}; known devices: {known}")
    if kind not in KINDS:
        raise FarmError(f"{where} has kind {kind!r}; known kinds: {', '.join(KINDS)}")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise FarmError(f"{where} needs a list of strings as tags, not {tags!r}")
    try:
        return Board(name, device, from_table(KINDS[kind], settings), tuple(tags))
    except (ValueError, FarmError) as error:
        raise FarmError(f"{where} (kind {kind}): {error}") from None
