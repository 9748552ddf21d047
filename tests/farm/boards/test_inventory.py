"""Written entries round-trip; hostile text is not interpreted."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pockengine.errors import FarmError
from pockengine.farm.boards.board import Board, Local, Remote, boards_for, load_boards
from pockengine.farm.boards.enroll import Login, fingerprint
from pockengine.farm.boards.inventory import add_board, entry_text

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJx0WKSNrYpXWFH3sRdhQHvfwmHxVuHyYEMb3z0oc5Tk"
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


def board(**changes: object) -> Board:
    values: dict[str, object] = {"host": "h", "user": "pi", "key_file": "~/k", "host_key": KEY}
    return Board("desk", "rpi4", Remote(**{**values, **changes}))


@given(TEXT, TEXT.map("/{}".format), st.lists(TEXT, max_size=3).map(tuple), st.integers(1, 65535))
def test_any_text_round_trips(
    tmp_path_factory: pytest.TempPathFactory,
    host: str,
    workdir: str,
    power: tuple[str, ...],
    port: int,
) -> None:
    file = tmp_path_factory.mktemp("inventory") / "boards.toml"
    file.write_text(entry_text(board(host=host, workdir=workdir, power=power, port=port)))

    assert load_boards([file]) == [board(host=host, workdir=workdir, power=power, port=port)]


def test_entries_are_appended_to_the_user_file(tmp_path: Path) -> None:
    file = tmp_path / "farm" / "boards.toml"
    file.parent.mkdir()
    file.write_text("# my boards\n[here]\ndevice = 'host'\nkind = 'local'\n")

    add_board(board(), file)

    assert file.read_text().startswith("# my boards\n[here]\n")
    assert [b.name for b in load_boards([file])] == ["here", "desk"]
    assert not list(file.parent.glob(".making-*"))


def test_duplicate_names_are_refused(tmp_path: Path) -> None:
    add_board(board(), tmp_path / "boards.toml")

    with pytest.raises(FarmError, match="has a board 'desk' already"):
        add_board(board(), tmp_path / "boards.toml")


def test_concurrent_additions_are_all_stored(tmp_path: Path) -> None:
    names = {f"desk-{i}" for i in range(12)}

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: add_board(replace(board(), name=name), tmp_path / "b"), names))

    assert {one.name for one in load_boards([tmp_path / "b"])} == names


@pytest.mark.parametrize("name", ["", "a ", "-x", "a/b", "a\nb", "$(id)"])
def test_invalid_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FarmError, match="cannot name a board"):
        add_board(Board(name, "host", Local()), tmp_path / "boards.toml")


def test_boards_are_selected_by_device_name_and_tags() -> None:
    boards = [
        Board("a", "rpi4", Local(), ("fast",)),
        Board("b", "rpi4", Local()),
        Board("c", "host", Local()),
    ]

    assert [b.name for b in boards_for("rpi4", boards)] == ["a", "b"]
    assert [b.name for b in boards_for("rpi4", boards, ["fast"])] == ["a"]
    assert [b.name for b in boards_for("c", boards)] == ["c"]
    with pytest.raises(FarmError, match="has the tags slow"):
        boards_for("rpi4", boards, ["slow"])
    with pytest.raises(FarmError, match="no board for device 'x'"):
        boards_for("x", boards)


def test_addresses_are_parsed() -> None:
    assert Login.parse("ssh://pi@host") == Login("pi", "host", 22)
    assert Login.parse("ssh://pi@10.0.0.1:2222/") == Login("pi", "10.0.0.1", 2222)
    assert Login.parse("ssh://[fe80::1]") == Login("root", "fe80::1", 22)


@pytest.mark.parametrize(
    "text",
    [
        "host",
        "http://a@b",
        "ssh://pi:secret@host",
        "ssh://pi@-oProxyCommand=x",
        "ssh://-l@host",
        "ssh://host:0",
        "ssh://host:99999",
        "ssh://a@b c",
        "ssh://",
    ],
)
def test_invalid_addresses_are_refused_and_not_printed(text: str) -> None:
    with pytest.raises(FarmError, match="not an address") as caught:
        Login.parse(text)
    assert "secret" not in str(caught.value)


def test_fingerprints_match_ssh_keygen() -> None:
    assert fingerprint(KEY) == "SHA256:YpgqFJYsmiJPlZFJfexr+dUoxKeZAKrUl3PLHBx3DVU"
