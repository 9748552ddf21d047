"""Power commands and serial lines of boards on a shelf."""

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from pockengine.errors import FarmError
from pockengine.farm.transports.ssh import SshAddress
from pockengine.farm.transports.supply import Shelf
from pockengine.tests.farm.helpers import HOSTILE, eventually, script

ADDRESS = SshAddress("desk", "127.0.0.1", 22, "pi", Path("key"), "ssh-ed25519 AAAA", "/tmp/x")


def test_power_command_gets_the_action_as_last_argument(tmp_path: Path) -> None:
    switch = script(tmp_path, f'printf "%s|" "$@" >> {tmp_path}/said')

    with closing(Shelf(ADDRESS, [str(switch), *HOSTILE], "")) as shelf:
        shelf.power("cycle")

    assert (tmp_path / "said").read_text() == "".join(f"{text}|" for text in [*HOSTILE, "cycle"])


def test_error_of_a_failed_power_command_has_the_reason(tmp_path: Path) -> None:
    switch = script(tmp_path, "echo 'socket 7 is on fire' >&2; exit 4")

    with (
        closing(Shelf(ADDRESS, [str(switch)], "")) as shelf,
        pytest.raises(FarmError, match=r"desk: power off:.*status 4: socket 7 is on fire"),
    ):
        shelf.power("off")


def test_error_without_a_power_command_has_the_fix() -> None:
    with (
        closing(Shelf(ADDRESS, [], "")) as shelf,
        pytest.raises(FarmError, match=r"desk has no power command.*power = "),
    ):
        shelf.power("cycle")


def test_serial_devices_are_read() -> None:
    board, line = os.openpty()
    with closing(Shelf(ADDRESS, [], os.ttyname(line))) as shelf:
        os.write(board, b"[    0.000000] Booting Linux\r\n")

        assert eventually(lambda: "Booting Linux\r\n" in shelf.console())
    os.close(board)
    os.close(line)


def test_console_servers_are_read_until_they_disconnect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with closing(Shelf(ADDRESS, [], place)) as shelf:
            connection, _ = server.accept()
            connection.sendall(b"login: ")
            connection.close()

            assert eventually(lambda: shelf.console() == "login: ")


@pytest.mark.parametrize("place", ["/dev/no-such-tty", "tcp://127.0.0.1", "tcp://127.0.0.1:1"])
def test_consoles_that_cannot_be_opened_are_an_error(place: str) -> None:
    with pytest.raises(FarmError, match=r"desk: cannot listen to its console"):
        Shelf(ADDRESS, [], place)
