"""Files are written atomically, links are not followed, devices are not replaced."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pockengine.files import (
    locked,
    place_once,
    private_folder,
    read_toml,
    whole_path,
    write_text_whole,
    write_whole,
)


def test_a_file_is_written_and_no_other_file_remains(tmp_path: Path) -> None:
    for text in ("a", "b"):
        write_text_whole(tmp_path / "file", text)
    assert (tmp_path / "file").read_text() == "b"
    assert len(list(tmp_path.iterdir())) == 1


def test_permissions_are_preserved_and_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text_whole(tmp_path / "new", "")
        (tmp_path / "kept").touch()
        (tmp_path / "kept").chmod(0o600)
        write_text_whole(tmp_path / "kept", "")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o600


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    def fail(part: Path) -> None:
        part.write_text("half")
        raise OSError("the disk is full")

    write_text_whole(tmp_path / "file", "old")
    with pytest.raises(OSError, match="full"):
        write_whole(tmp_path / "file", fail)
    assert (tmp_path / "file").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_target_of_a_link_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("kept")
    (tmp_path / "link").symlink_to("target")
    write_text_whole(tmp_path / "link", "new")
    assert (tmp_path / "target").read_text() == "kept"
    assert (tmp_path / "link").read_text() == "new"


@pytest.mark.parametrize("kind", ["/dev/null", "/dev/full", "fifo", "folder", "link to a device"])
def test_devices_and_folders_are_not_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "place"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to a device":
        path.symlink_to("/dev/null")
    else:
        path = Path(kind)
    before = path.lstat()
    with pytest.raises(OSError, match="no regular file"):
        write_text_whole(path, "")
    assert path.lstat().st_ino == before.st_ino


def test_a_path_with_a_nul_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    with pytest.raises(OSError, match=r"'.*kept\\x00x' holds a NUL"):
        write_text_whole(tmp_path / "kept\0x", "")
    with pytest.raises(KeyError, match="encoding of files"):
        whole_path("\ud800", KeyError)
    assert (tmp_path / "kept").read_text() == "kept"


def test_concurrent_writers_do_not_share_a_name(tmp_path: Path) -> None:
    texts = [str(digit) * 100_000 for digit in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            list(pool.map(lambda text: write_text_whole(tmp_path / "file", text), texts))
            assert (tmp_path / "file").read_text() in texts
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_in_use_is_not_removed(tmp_path: Path) -> None:
    with private_folder(tmp_path / "file") as first, private_folder(tmp_path / "file") as second:
        assert first != second
        assert first.exists()


@pytest.mark.parametrize(
    "text",
    [
        b"\xff",
        b"a = 1" + b"0" * 5000,
        b"a = 0x1" + b"0" * 5000,
        b"a = 9223372036854775808",
        b"a = " + b"[" * 5000,
        b"a = 1\na = 2",
        b"a.b = 1\na = 2",
    ],
    ids=range(7),
)
def test_invalid_toml_is_a_value_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "file.toml").write_bytes(text)
    with pytest.raises(ValueError, match=r"."):
        read_toml(tmp_path / "file.toml")


def test_the_first_process_makes_a_folder_and_others_wait(tmp_path: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "part").write_text("whole")

    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda _: place_once(tmp_path / "f" / "x", make), range(8)))

    assert len(made) == 1
    assert {(place / "part").read_text() for place in places} == {"whole"}
    assert sorted(path.name for path in (tmp_path / "f").iterdir()) == ["x", "x.lock"]


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    with private_folder(tmp_path / "x") as killed:
        pass
    (killed / "half").mkdir(parents=True)

    place_once(tmp_path / "x", lambda _: None)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "x.lock"]


def test_a_failed_folder_does_not_exist(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "part").touch()
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        place_once(tmp_path / "x", make)

    assert [path.name for path in tmp_path.iterdir()] == ["x.lock"]


def test_a_lock_is_exclusive(tmp_path: Path) -> None:
    total = tmp_path / "total"
    total.write_text("0")

    def add(_: int) -> None:
        with locked(tmp_path / "lock"):
            total.write_text(str(int(total.read_text()) + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(100)))

    assert total.read_text() == "100"
