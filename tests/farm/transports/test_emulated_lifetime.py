"""An emulator never outlives the program that started it; a failed boot reports its reason."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pockengine.errors import BoardUnreachable, FarmError
from pockengine.farm.boards.board import BUILT_IN, Emulated, board_for, load_boards
from pockengine.farm.boards.connect import guest_of
from pockengine.farm.images.image import Image, ensure_image
from pockengine.farm.transports import emulated
from pockengine.farm.transports.emulated import (
    BOOT_TIMEOUT_S,
    Emulation,
    Guest,
    running,
    wait_for_ssh,
)
from pockengine.tests.farm.helpers import eventually, image_with_init, needs_qemu

# Boots a board as any program does, prints QEMU's process id, and waits to be killed.
PROGRAM = """
import signal
from pockengine.farm.transports.emulated import Guest, running
from pockengine.farm.images.image import ensure_image
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
with running("rpi4-qemu", Guest("virt", "cortex-a72", 1, 256, 16), ensure_image()) as machine:
    print(machine.process.pid, flush=True)
    while True:
        signal.pause()
"""


def guest() -> Guest:
    board = board_for("rpi4", load_boards([BUILT_IN]))
    assert isinstance(board.place, Emulated)
    return guest_of(board, board.place)


def is_qemu(pid: int) -> bool:
    """Return whether the process exists and is QEMU (process ids are reused)."""
    try:
        return b"qemu" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def becomes(expected: bool, pid: int) -> bool:
    """Return whether `is_qemu` soon becomes `expected`, as processes take time to start and end."""
    return eventually(lambda: is_qemu(pid) is expected)


@needs_qemu
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_emulators_end_with_their_program(ending: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=environment
    ) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        started = becomes(True, pid)
        program.send_signal(ending)
        program.wait()

    assert started
    assert becomes(False, pid)


@needs_qemu
def test_emulators_end_when_an_error_leaves_the_block() -> None:
    with pytest.raises(ZeroDivisionError), running("b", guest(), ensure_image()) as machine:
        raise ZeroDivisionError
    assert machine.process.returncode == -signal.SIGKILL


@needs_qemu
def test_silent_boards_time_out_with_their_console(tmp_path: Path) -> None:
    image = image_with_init(
        tmp_path, "#!/bin/busybox sh\necho stuck here\nexec /bin/busybox sleep 1000\n"
    )

    with running("b", guest(), image) as machine:
        assert eventually(lambda: b"stuck here" in machine.console.read_bytes(), BOOT_TIMEOUT_S)
        with pytest.raises(BoardUnreachable, match=r"(?s)b did not answer within 1 s.*  stuck"):
            wait_for_ssh(machine, 1)


@needs_qemu
def test_kernel_panics_are_reported_immediately(tmp_path: Path) -> None:
    image = image_with_init(tmp_path, "#!/bin/busybox sh\nexit 1\n")

    with (
        running("b", guest(), image) as machine,
        pytest.raises(BoardUnreachable, match=r"(?s)stopped while it booted.*Kernel panic"),
    ):
        wait_for_ssh(machine, BOOT_TIMEOUT_S)


@needs_qemu
def test_error_has_the_message_of_the_emulator() -> None:
    strange = replace(guest(), cpu="z80")

    with (
        running("b", strange, ensure_image()) as machine,
        pytest.raises(BoardUnreachable, match=r"(?s)stopped while it booted.*z80"),
    ):
        wait_for_ssh(machine, BOOT_TIMEOUT_S)


@needs_qemu
def test_board_boots_by_another_port_if_its_port_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = emulated._free_port
    with socket.create_server(("127.0.0.1", 0)) as other, closing(_supply()) as supply:
        taken = other.getsockname()[1]
        ports = iter((taken, free()))
        monkeypatch.setattr(emulated, "_free_port", lambda: next(ports))
        supply.power("on")
        assert supply.address.port != taken
        assert emulated.PORT_TAKEN in supply.console()


@needs_qemu
def test_error_names_a_port_that_stays_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, closing(_supply()) as supply:
        monkeypatch.setattr(emulated, "_free_port", lambda: other.getsockname()[1])
        with pytest.raises(BoardUnreachable, match=emulated.PORT_TAKEN):
            supply.power("on")


def _supply() -> Emulation:
    return Emulation("b", guest(), ensure_image(), BOOT_TIMEOUT_S)


def test_error_for_a_missing_emulator_has_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    nothing = tmp_path / "nothing"
    image = Image(nothing, nothing, None)

    with (
        pytest.raises(FarmError, match=r"qemu-system-aarch64 is missing.*apt-get install"),
        running("b", guest(), image),
    ):
        pass


def test_only_the_newest_consoles_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(emulated.MOST_CONSOLES + 5):
        emulated._new_console("b").touch()

    assert len(list(tmp_path.rglob("*.log"))) == emulated.MOST_CONSOLES + 1
