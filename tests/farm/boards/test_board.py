from pathlib import Path

import pytest

from pockengine.devices import known_devices
from pockengine.errors import FarmError
from pockengine.farm.boards.board import (
    BUILT_IN,
    Board,
    Emulated,
    Local,
    Remote,
    board_for,
    load_boards,
)
from pockengine.farm.boards.connect import guest_of, launcher_of, opening
from pockengine.farm.images import image

OWN = """
[pi-on-the-desk]
device = "rpi4"
kind = "ssh"
host = "192.168.1.20"
user = "pi"
key_file = "~/.ssh/farm"
host_key = "ssh-ed25519 AAAA"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "boards.toml"
    path.write_text(text)
    return path


def test_built_in_boards_are_of_known_devices() -> None:
    boards = load_boards([BUILT_IN])

    assert {board.device for board in boards} <= set(known_devices())
    assert isinstance(board_for("host", boards).place, Local)
    assert isinstance(board_for("rpi4", boards).place, Emulated)


def test_only_emulated_boards_are_marked_as_such() -> None:
    boards = load_boards([BUILT_IN])

    assert board_for("rpi4", boards).emulated
    assert not board_for("host", boards).emulated


def test_webassembly_is_launched_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    board = board_for("wasm32", load_boards([BUILT_IN]))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    program, *_, script = launcher_of(board)
    assert program == "node"
    assert Path(script).is_file()

    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(FarmError, match="node is missing; install it with: apt-get install nodejs"):
        launcher_of(board)


def test_guest_matches_the_device_file() -> None:
    board = board_for("rpi4", load_boards([BUILT_IN]))
    assert isinstance(board.place, Emulated)

    guest = guest_of(board, board.place)

    assert (guest.cpu, guest.cores) == ("cortex-a72", 4)
    assert guest.disk_mb < guest.memory_mb


def test_user_boards_override_built_in_ones(tmp_path: Path) -> None:
    boards = load_boards([write(tmp_path, OWN), BUILT_IN])

    assert board_for("rpi4", boards).name == "pi-on-the-desk"
    assert board_for("rpi4-qemu", boards).name == "rpi4-qemu"
    assert isinstance(board_for("rpi4", boards).place, Remote)


def test_user_boards_are_read_from_the_configuration_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "pockengine").mkdir()
    write(tmp_path / "pockengine", OWN)

    assert board_for("rpi4", load_boards()).name == "pi-on-the-desk"


def test_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(FarmError, match=r"'rpi9'.*host.*rpi4"):
        board_for("rpi9", load_boards([BUILT_IN]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[x]\nkind = 'local'", "needs device"),
        ("[x]\ndevice = 'rpi9'\nkind = 'local'", "board 'x' has an unknown device 'rpi9'.*rpi4"),
        (
            "[x]\ndevice = 'host'\nkind = 'cloud'",
            "'cloud'.*local, emulated, .*ssh, adb",
        ),
        ("[x]\ndevice = 'host'\nkind = 'local'\nhots = 'a'", "unknown key 'hots'"),
        (
            "[x]\ndevice = 'rpi4'\nkind = 'emulated'\ndisk_mb = '1'",
            "disk_mb must be of type int, not '1'",
        ),
        ("[x]\ndevice = 'rpi4'\nkind = 'ssh'\nhost = 'a'", "lacks user, key_file, host_key"),
        ("[x]\ndevice = 'host'\nkind = 'local'\ntags = 'a'", "list of strings"),
        ("x = 1", "must be a table"),
        ("[x", "cannot read the boards"),
    ],
)
def test_error_in_a_description_names_file_board_and_key(
    tmp_path: Path, text: str, message: str
) -> None:
    file = write(tmp_path, text)

    with pytest.raises(FarmError, match=message) as caught:
        load_boards([file])
    assert str(file) in str(caught.value)


def test_first_boot_announces_the_image_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    board = Board("rpi4-qemu", "rpi4", Emulated(96))
    first = opening(board)
    farm = tmp_path / "pockengine" / "farm"
    keys = image._ensure_keys(image._keys(farm))
    without = opening(board)
    (farm / "images" / image._recipe_hash(keys)).mkdir(parents=True)

    assert first == without == "building the emulator's image, once, then booting its emulator"
    assert opening(board) == "booting its emulator"
