"""The command line of the farm, against a real emulated board."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pockengine.farm.boards.board import BUILT_IN, Emulated, board_for, load_boards
from pockengine.farm.boards.connect import connect, guest_of
from pockengine.farm.boards.enroll import Login, fetch_host_key, fingerprint
from pockengine.farm.cli.main import cli
from pockengine.farm.images.image import ensure_image
from pockengine.farm.transports.emulated import RunningEmulator, running, wait_for_ssh
from pockengine.tests.farm.helpers import needs_qemu


@pytest.fixture(name="machine", scope="module")
def a_running_machine() -> object:
    board = board_for("rpi4", load_boards([BUILT_IN]))
    assert isinstance(board.place, Emulated)
    with running("desk", replace(guest_of(board, board.place), cores=1), ensure_image()) as machine:
        wait_for_ssh(machine, 240)
        yield machine


@pytest.fixture(name="home")
def temporary_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "pockengine" / "boards.toml"


def arguments(machine: RunningEmulator, *more: str) -> list[str]:
    address = f"ssh://root@127.0.0.1:{machine.port}"
    key = str(ensure_image().keys.client)
    return ["add", address, "--key", key, "--name", "desk", "--workdir", "/jobs", *more]


@needs_qemu
def test_added_board_is_probed_shown_and_pinned(machine: RunningEmulator, home: Path) -> None:
    result = CliRunner().invoke(cli, arguments(machine, "--tag", "shelf-2"), input="y\n")

    assert result.exit_code == 0, result.output
    assert fingerprint(ensure_image().keys.host_public) in result.output
    assert "CPU: CPU part 0xd08" in result.output
    board = board_for("desk", load_boards())
    assert (board.device, board.tags) == ("rpi4", ("shelf-2",))
    assert ensure_image().keys.host_public in home.read_text()
    with connect(board) as transport:
        assert transport.run(["uname", "-m"]).stdout == b"aarch64\n"


@needs_qemu
@pytest.mark.parametrize("more", [[], ["--fingerprint", "SHA256:another"]])
def test_rejected_host_keys_are_not_written(
    machine: RunningEmulator, home: Path, more: list[str]
) -> None:
    result = CliRunner().invoke(cli, arguments(machine, *more), input="n\n")

    assert result.exit_code == 1
    assert "its host key was not accepted; nothing was written" in result.output
    assert not home.exists()


@needs_qemu
def test_scanned_key_is_the_host_key(machine: RunningEmulator) -> None:
    key = fetch_host_key(Login("root", "127.0.0.1", machine.port))

    assert key == ensure_image().keys.host_public


def test_boards_are_listed(home: Path) -> None:
    result = CliRunner().invoke(cli, ["boards"])

    assert result.exit_code == 0
    for name in ("host", "rpi4-qemu", "rpi5-qemu", "jetson-orin-qemu", "snapdragon-dsp-qemu"):
        assert name in result.output
    rows = json.loads(CliRunner().invoke(cli, ["boards", "--json"]).output)
    assert {"host", "rpi4-qemu"} <= {row["board"] for row in rows}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["add", "pi@host", "--key", "k"], "not an address"),
        (["add", "ssh://pi@127.0.0.1:1", "--key", "k"], "shows no host key"),
        (
            ["add", "ssh://pi@127.0.0.1:1", "--key", "k", "--device", "rpi9.toml"],
            "unknown device 'rpi9.toml'; known devices: ",
        ),
        (["add", "adb://x", "--power", 'a "b'], "--power 'a \"b' is no command"),
        (["add", "adb://x", "--workdir", "jobs"], "workdir 'jobs' is no absolute path"),
        (["ping", "nosuch"], "no board for device 'nosuch'"),
    ],
)
def test_errors_are_one_line(home: Path, command: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, command)

    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output
