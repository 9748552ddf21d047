"""`pockengine doctor` names what is missing with the command that brings it."""

import json
from importlib.metadata import PackageNotFoundError
from shutil import which

import pytest
from click.testing import CliRunner, Result

from pockengine import extras
from pockengine.cli import doctor
from pockengine.cli.main import cli


def examined(*options: str) -> Result:
    return CliRunner().invoke(cli, ["doctor", *options])


def test_what_is_here_is_shown_with_its_version() -> None:
    said = examined()

    assert said.exit_code == 0, said.output
    (zig,) = (line for line in said.stdout.splitlines() if " zig " in line)
    assert zig.split()[0] == "ok"


def test_the_packages_of_this_machine_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[int] = []

    def listed() -> dict[str, list[str]]:
        times.append(1)
        return {}

    monkeypatch.setattr(doctor, "packages_distributions", listed)
    examined()
    assert len(times) == 1


def test_what_is_missing_is_shown_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "which", lambda name: None)

    said = examined("--json")

    assert said.exit_code == 0  # nothing of this is needed to compile
    details = {row["name"]: row["detail"] for row in json.loads(said.stdout)}
    assert details["report"].startswith("pip install 'pockengine[report]'  (no jinja2, matplotlib)")
    assert details["qemu-system-aarch64"] == "apt-get install qemu-system-arm"


def test_without_a_compiler_the_exit_status_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", version)
    assert bool(which("gcc") or which("clang")) == (examined().exit_code == 0)

    monkeypatch.setattr(doctor, "which", lambda name: None)
    said = examined()

    assert said.exit_code == 1
    assert "pip install ziglang" in said.stdout
    assert "MISSING" in said.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    said = CliRunner().invoke(cli, ["completion", shell])

    assert said.exit_code == 0, said.output
    assert f"_POCKENGINE_COMPLETE={shell}_complete" in said.stdout
