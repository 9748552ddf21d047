"""Arguments that `ab` rejects before it boots or connects to a board."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from pockengine.farm.cli.main import cli


@pytest.fixture(name="desk", autouse=True)
def a_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.npz").touch()
    (tmp_path / "photos").mkdir()
    return tmp_path


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["ab", "rpi4-qemu", *arguments])
    assert result.exit_code == 1
    assert "connecting" not in result.output
    return " ".join(result.output.split())


def compiled_for(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace `load`: every folder is an artifact for a device."""

    def load(folder: Path) -> SimpleNamespace:
        return SimpleNamespace(folder=folder, device=device, weights=folder, executable=folder)

    monkeypatch.setattr(sys.modules["pockengine.farm.cli.ab"], "load_artifact", load)


def test_a_file_is_no_artifact() -> None:
    message = refusal("rows.npz", "other", "--data", "rows.npz")
    assert "rows.npz is no artifact: it is a file; compile" in message


@pytest.mark.parametrize(
    ("data", "fact"), [("absent.npz", "there is no such file"), ("photos", "it is a folder")]
)
def test_rows_are_one_file(data: str, fact: str) -> None:
    assert f"--data {data}: {fact}; give one file" in refusal("a", "b", "--data", data)


def test_an_artifact_for_another_processor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_for("host", monkeypatch)
    message = refusal("a", "b", "--data", "rows.npz")
    assert "/a is for host, and rpi4-qemu is of the device rpi4; compile with" in message


@pytest.mark.parametrize("device", ["rpi4", "rpi5", "described-by-a-file"])
def test_an_artifact_that_may_run_reaches_the_board(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_for(device, monkeypatch)
    monkeypatch.setattr(sys.modules["pockengine.farm.cli.ab"], "checkout", None)
    result = CliRunner().invoke(cli, ["ab", "rpi4-qemu", "a", "b", "--data", "rows.npz"])
    assert "connecting to rpi4-qemu" in result.output
