"""An emulated phone: the client is Debian's adb, the daemon is ours."""

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pockengine.errors import BoardRefused, BoardUnreachable, FarmError, JobFailed, LogError
from pockengine.farm.boards.board import AdbPhone, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.boards.enroll import Wishes, enroll_phone
from pockengine.farm.boards.inventory import add_board
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.transports.adb import AdbTransport
from pockengine.farm.transports.adb_client import AdbAddress, AdbClient
from pockengine.farm.transports.phone import Phone
from pockengine.tests.farm.helpers import HOSTILE, eventually, script

SHOW_PATH = ["sh", "-c", "echo $PATH"]
needs_adb = pytest.mark.skipif(
    shutil.which("adb") is None, reason="adb is not installed (apt-get install adb)"
)


@pytest.fixture(name="phone", scope="module", params=["this machine", "toybox"])
def an_emulated_phone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Phone]:
    """Start a phone with this machine's commands, or one with Android's mksh and toybox."""
    path = None
    if request.param == "toybox":
        path = str(android_commands(tmp_path_factory.mktemp("bin")))
    with closing(Phone("phone", path)) as phone:
        phone.open()
        yield phone


def android_commands(folder: Path) -> Path:
    shell, toybox, setpriv = map(shutil.which, ("mksh", "toybox", "setpriv"))
    if shell is None or toybox is None or setpriv is None:
        pytest.skip("mksh or toybox is not installed (apt-get install mksh toybox)")
    applets = subprocess.run([toybox], capture_output=True, text=True, check=True).stdout.split()
    for name in applets:
        (folder / name).symlink_to(toybox)
    for name, program in (("sh", shell), ("setpriv", setpriv)):
        (folder / name).symlink_to(program)
    return folder


@pytest.fixture(name="board")
def an_open_phone(phone: Phone) -> Iterator[AdbTransport]:
    with closing(AdbTransport(phone.address)) as board:
        yield board


@needs_adb
def test_arguments_status_and_both_outputs_are_returned(board: AdbTransport) -> None:
    result = board.run(["printf", "%s|", *HOSTILE])
    failed = board.run(["sh", "-c", "printf out; printf err >&2; exit 255"])

    assert result.stdout.decode() == "".join(f"{text}|" for text in HOSTILE)
    assert (failed.status, failed.stdout, failed.stderr) == (255, b"out", b"err")
    assert board.run(["sh", "-c", "kill -SEGV $$"]).signal == "SIGSEGV"


@needs_adb
def test_commands_leave_no_watchdog_process(board: AdbTransport) -> None:
    """The watching shell is identified by a timeout that no other command uses."""
    assert board.run(["true"], timeout_s=7613).ok
    assert eventually(lambda: not shells_with(b"left=7613"))


def shells_with(text: bytes) -> list[Path]:
    """Return the processes whose command line contains a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text in path.read_bytes():
                found.append(path)
    return found


@needs_adb
def test_commands_with_too_much_time_or_output_are_killed(board: AdbTransport) -> None:
    with pytest.raises(JobFailed, match=r"phone: 'sleep' did not end within 0\.5 s"):
        board.run(["sleep", "30"], timeout_s=0.5)
    with pytest.raises(JobFailed, match="printed more than"):
        board.run(["cat", "/dev/zero"], timeout_s=120)


@needs_adb
def test_output_arrives_while_the_command_runs(board: AdbTransport) -> None:
    """A sink that raises ends the command, which would take 20 s otherwise."""

    def sink(_: str, data: bytes) -> None:
        raise InterruptedError(data.decode())

    with pytest.raises(InterruptedError, match="first"):
        board.run(["sh", "-c", "echo first; sleep 20"], sink=sink)


@needs_adb
def test_jobs_run_through_the_launcher(phone: Phone, tmp_path: Path) -> None:
    data = tmp_path / "a file"
    data.write_bytes(bytes(range(256)) * 3000)
    launcher = script(tmp_path, 'echo "launched"; exec "$@"', "launcher.sh")
    program = script(tmp_path, 'cat "$1" > out; echo done')
    job = Job(program, args=("a file",), inputs={"a file": data}, outputs=("out",))

    with closing(AdbTransport(phone.address, [str(launcher)])) as board:
        result = run_job(board, job, tmp_path / "results")
        left = board.run(["ls", f"{board.workdir}/jobs"]).stdout
        again = board.put(data, f"{board.workdir}/b")

    assert result.run.stdout == b"launched\ndone\n"
    assert result.outputs["out"].read_bytes() == data.read_bytes()
    assert (left, again) == (b"", False)


@needs_adb
def test_transfer_errors_name_the_phone_and_the_file(board: AdbTransport, tmp_path: Path) -> None:
    with pytest.raises(FarmError, match="phone: cannot download /nowhere"):
        board.get("/nowhere", tmp_path / "x")
    with pytest.raises(FarmError, match=r"phone: ln -sf .* /nowhere/x"):
        board.put(script(tmp_path, "true"), "/nowhere/x")
    assert not list(tmp_path.glob(".x*"))


@needs_adb
def test_a_full_disk_here_is_no_fault_of_the_phone(
    board: AdbTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"adb: error: cannot write 'part': {os.strerror(errno.ENOSPC)}\n"
    monkeypatch.setattr(board._client, "call", lambda *arguments, timeout_s: words)
    with pytest.raises(LogError, match=r"fetched cannot be written: No space left.* make room"):
        board.get("/data/local/tmp/there", tmp_path / "fetched")


@needs_adb
def test_reconnected_phones_and_servers_are_found() -> None:
    with closing(Phone("phone")) as phone:
        board = phone.open()
        phone.switch_off()
        with pytest.raises(BoardUnreachable, match=r"phone \(127.*wireless debugging"):
            AdbClient(phone.address).connect(0)
        phone.switch_on()
        assert board.run(["echo", "back"]).stdout == b"back\n"
        AdbClient(phone.address).end_server()
        assert board.run(["echo", "again"]).stdout == b"again\n"


@needs_adb
def test_each_phone_of_a_server_runs_its_own_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Phone("first")) as first, closing(Phone("second")) as second:
        first.open()
        monkeypatch.setattr(second, "_key", first._key)  # the key of the one server
        second.switch_on()
        server = {"socket": first.address.socket, "environment": first.address.environment}
        phones = {first: first.address, second: replace(second.address, **server)}
        with ThreadPoolExecutor(len(phones)) as pool:
            printed = pool.map(lambda one: AdbTransport(one).run(SHOW_PATH).stdout, phones.values())

        for phone, paths in zip(phones, printed, strict=True):
            assert paths.startswith(f"{phone.home}/bin:".encode())


@needs_adb
def test_untrusted_keys_are_refused(tmp_path: Path) -> None:
    with closing(Phone("phone")) as phone, closing(Phone("stranger")) as stranger:
        phone.open()
        stranger.open()
        other = replace(stranger.address, serial=phone.address.serial)
        with pytest.raises(BoardRefused, match="does not trust this computer: unlock it"):
            AdbClient(other).connect()


@needs_adb
def test_phones_are_added_as_boards(
    phone: Phone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADB_SERVER_SOCKET", phone.address.socket)
    monkeypatch.setenv("HOME", str(phone.home))
    wishes = Wishes(name="desk", device="phone-arm64", workdir=phone.address.workdir)

    board, facts = enroll_phone(phone.address.serial, wishes)
    add_board(board, tmp_path / "boards.toml")

    assert facts.model.startswith("PockEngine emulated phone, Android arm64-v8a")
    assert load_boards([tmp_path / "boards.toml"]) == [board]
    assert board.place == AdbPhone(phone.address.serial, phone.address.workdir)
    with connect(board) as transport:
        assert transport.run(["echo", "here"]).stdout == b"here\n"
    with pytest.raises(FarmError, match=r"is no device that we know.*--device NAME"):
        enroll_phone(phone.address.serial, replace(wishes, device=None))


@needs_adb
@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ("error: device 'x' not found", BoardUnreachable, "not connected: plug it in with USB"),
        ("error: device offline", BoardUnreachable, "offline: unlock it"),
        ("error: device unauthorized.\nThis adb server's $", BoardRefused, "accept the key"),
        ("error: insufficient permissions: no permissions", BoardRefused, "plugdev"),
        ("failed to authenticate to x", BoardRefused, "accept the key"),
        ("error: closed", BoardUnreachable, "error: closed"),
        ("", BoardUnreachable, "adb is mute"),
    ],
)
def test_adb_errors_name_the_phone_the_fact_and_the_fix(
    words: str, kind: type[FarmError], message: str
) -> None:
    error = AdbClient(AdbAddress("desk", "x", "/w")).refusal(words)

    assert type(error) is kind
    assert str(error).startswith("desk (x) ")
    assert message in str(error)


@needs_adb
@pytest.mark.parametrize("serial", ["", "-s", "a b", "$(id)"])
def test_invalid_serials_are_refused(serial: str) -> None:
    with pytest.raises(FarmError, match=r"desk: .* is no serial; `adb devices` lists them"):
        AdbClient(AdbAddress("desk", serial, "/w"))


def test_error_for_missing_adb_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FarmError, match="desk: adb is missing; install it: apt-get install adb"):
        AdbClient(AdbAddress("desk", "x", "/w"))
