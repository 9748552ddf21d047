"""`pockengine doctor` lists missing packages with the command that installs each."""

import json
import re
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from shutil import which

import pytest
from click.testing import CliRunner, Result

from pockengine import extras
from pockengine.cli import doctor
from pockengine.cli.main import cli
from pockengine.extras import pip_command


def examined(*options: str) -> Result:
    return CliRunner().invoke(cli, ["doctor", "--quick", *options])


def test_installed_packages_are_shown_with_their_versions() -> None:
    result = examined()

    assert result.exit_code == 0, result.output
    (zig,) = (line for line in result.stdout.splitlines() if " zig " in line)
    assert zig.split()[0] == "ok"


def test_the_packages_of_this_machine_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[int] = []

    def listed() -> dict[str, list[str]]:
        times.append(1)
        return {}

    monkeypatch.setattr(doctor, "packages_distributions", listed)
    examined()
    assert len(times) == 1


def test_missing_packages_are_shown_with_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "which", lambda name: None)

    result = examined("--json")

    assert result.exit_code == 0  # compiling needs none of these
    details = {row["name"]: row["detail"] for row in json.loads(result.stdout)}
    assert details["report"] == f"{pip_command('report')}  (no jinja2, matplotlib)"
    assert details["qemu-system-aarch64"] == "apt-get install qemu-system-arm"


def test_without_a_compiler_the_exit_status_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", version)
    assert bool(which("gcc") or which("clang")) == (examined().exit_code == 0)

    monkeypatch.setattr(doctor, "which", lambda name: None)
    result = examined()

    assert result.exit_code == 1
    assert "pip install ziglang" in result.stdout
    assert "MISSING" in result.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_completion_script(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])

    assert result.exit_code == 0, result.output
    assert f"_POCKENGINE_COMPLETE={shell}_complete" in result.stdout


def test_a_layer_of_each_framework_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """This target has PyTorch; the others are treated as not installed."""
    monkeypatch.setattr(doctor, "LAYERS", {"torch": None})

    result = CliRunner().invoke(cli, ["doctor"])

    assert result.exit_code == 0, result.output
    assert re.search(r"ok +torch .*one layer trained in \d+ s", result.stdout)


def test_a_framework_that_cannot_train_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('built for another Python')\n")
    monkeypatch.setattr(doctor, "LAYERS", {"torch": None})
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    result = CliRunner().invoke(cli, ["doctor"])

    assert result.exit_code == 1
    assert re.search(r"FAILS +torch .*built for another Python", result.stdout)
