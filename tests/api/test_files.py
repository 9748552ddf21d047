"""Files are written whole, links are not followed, devices are not replaced."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pockengine.files import private_folder, read_toml, write_text_whole, write_whole


def test_a_file_is_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    for text in ("a", "b"):
        write_text_whole(tmp_path / "file", text)
    assert (tmp_path / "file").read_text() == "b"
    assert len(list(tmp_path.iterdir())) == 1


def test_permissions_are_kept_and_those_of_a_new_file_are_the_users(tmp_path: Path) -> None:
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


def test_what_a_link_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("kept")
    (tmp_path / "link").symlink_to("target")
    write_text_whole(tmp_path / "link", "new")
    assert (tmp_path / "target").read_text() == "kept"
    assert (tmp_path / "link").read_text() == "new"


@pytest.mark.parametrize("kind", ["/dev/null", "/dev/full", "fifo", "folder", "link to a device"])
def test_what_is_no_file_stays(tmp_path: Path, kind: str) -> None:
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


def test_writers_at_once_do_not_share_a_name(tmp_path: Path) -> None:
    texts = [str(digit) * 100_000 for digit in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            list(pool.map(lambda text: write_text_whole(tmp_path / "file", text), texts))
            assert (tmp_path / "file").read_text() in texts
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_held_is_not_removed(tmp_path: Path) -> None:
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
def test_toml_that_is_none_is_a_value_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "file.toml").write_bytes(text)
    with pytest.raises(ValueError, match=r"."):
        read_toml(tmp_path / "file.toml")
