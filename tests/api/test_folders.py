"""Per-user folders: their paths, and who may write to them."""

import os
import tempfile
from pathlib import Path

import pytest

from pockengine.errors import PockEngineError
from pockengine.folders import cache_folder, config_folder, data_folder


@pytest.fixture
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_xdg_variables_set_the_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert cache_folder() == tmp_path / "cache" / "pockengine"
    assert data_folder() == tmp_path / ".local/share/pockengine"


def test_folders_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "data" / "pockengine").mkdir(parents=True, mode=0o755)

    assert cache_folder().stat().st_mode & 0o777 == 0o700
    assert data_folder().stat().st_mode & 0o777 == 0o700


def test_without_a_home_the_folder_is_private_to_the_user(no_home: Path) -> None:
    folder = config_folder()

    home = no_home / f"pockengine-{os.getuid()}"
    assert folder == home / ".config/pockengine"
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_folder_writable_by_others_is_refused(no_home: Path) -> None:
    home = no_home / f"pockengine-{os.getuid()}"
    home.mkdir()
    home.chmod(0o777)

    with pytest.raises(PockEngineError, match="not this user's alone"):
        cache_folder()


def test_a_link_in_its_place_is_refused(no_home: Path) -> None:
    (no_home / "elsewhere").mkdir(mode=0o700)
    (no_home / f"pockengine-{os.getuid()}").symlink_to(no_home / "elsewhere")

    with pytest.raises(PockEngineError, match="not this user's alone"):
        cache_folder()
