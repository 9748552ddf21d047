"""Reasons why a board is unhealthy; the board is this machine, or Hexagon behind loopback."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.boards.board import Board, UserEmulated
from pockengine.farm.boards.connect import connect
from pockengine.farm.boards.facts import ask
from pockengine.farm.jobs import health, known_answer
from pockengine.farm.jobs.health import Needs, check_health, require_health
from pockengine.farm.transports.local import LocalTransport

HOST = load_device("host")


@pytest.fixture(name="here")
def this_machine() -> Iterator[LocalTransport]:
    with closing(LocalTransport("here")) as transport:
        yield transport


@pytest.mark.parametrize(
    ("needs", "problem"),
    [
        (Needs(disk_bytes=1 << 60), "bytes of disk are free, 1152921504606846976 are needed"),
        (Needs(memory_bytes=1 << 60), "bytes of memory are free"),
    ],
)
def test_error_names_a_shortage(here: LocalTransport, needs: Needs, problem: str) -> None:
    with pytest.raises(FarmError, match=rf"here is not healthy: .*{problem}"):
        require_health(here, HOST, needs)


@pytest.mark.parametrize(("jump", "word"), [(7200, "behind"), (-7200, "ahead")])
def test_error_names_a_wrong_clock(
    here: LocalTransport, monkeypatch: pytest.MonkeyPatch, jump: float, word: str
) -> None:
    really = time.time
    monkeypatch.setattr(time, "time", lambda: really() + jump)

    (problem,) = check_health(here, HOST, Needs(disk_bytes=0, memory_bytes=0)).problems

    around = range(7190, 7211)  # the query takes time, and its answer is in whole seconds
    assert problem in (f"its clock is {seconds} s {word}" for seconds in around)


def test_error_names_overheating(here: LocalTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    really = ask
    monkeypatch.setattr(health, "ask", lambda t: replace(really(t), temperature_c=91.0))

    problems = check_health(here, HOST, Needs(disk_bytes=0, memory_bytes=0)).problems

    assert problems == ("it is 91 °C hot, 80 is the most",)


def test_without_a_compiler_the_board_hashes(
    here: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "known_answer_program", lambda *_: None)
    needs = Needs(disk_bytes=0, memory_bytes=0)
    assert check_health(here, HOST, needs).problems == ()

    monkeypatch.setattr(health, "ZEROS", "0" * 64)

    assert "hashes a million zeros" in check_health(here, HOST, needs).problems[0]


def test_wrong_kernel_results_are_found(
    here: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "ANSWER", b"42\n")

    problems = check_health(here, HOST, Needs(disk_bytes=0, memory_bytes=0)).problems

    assert len(problems) == 1
    assert "a known kernel said b'known answer" in problems[0]


@pytest.mark.skipif(shutil.which("qemu-hexagon") is None, reason="qemu-hexagon is not installed")
def test_dsp_passes_the_kernel_check() -> None:
    device = load_device("snapdragon-dsp")
    if known_answer.known_answer_program(device) is None:
        pytest.skip("ziglang is not installed")

    with connect(Board("dsp", device.name, UserEmulated())) as transport:
        assert check_health(transport, device, Needs(disk_bytes=0, memory_bytes=0)).problems == ()


def test_programs_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_answer, "cache_folder", lambda: tmp_path)
    program = known_answer.known_answer_program(HOST)
    if program is None:
        pytest.skip("ziglang is not installed")
    monkeypatch.setattr(subprocess, "run", None)

    assert known_answer.known_answer_program(HOST) == program
    assert list(program.parent.iterdir()) == [program]


def test_cpus_of_an_architecture_share_a_libc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zig builds a libc for each CPU that it links for, in 75 s."""
    pytest.importorskip("ziglang")
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(known_answer, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(known_answer, "_why_not_built", lambda c, _: commands.append(c))
    with pytest.raises(FileNotFoundError):  # nothing is built
        known_answer.known_answer_program(load_device("rpi5"))
    cpus = [[word for word in command if word.startswith("-mcpu")] for command in commands]
    assert cpus == [["-mcpu=cortex_a76"], ["-mcpu=baseline"]]


def test_slow_compilers_are_not_board_faults(
    here: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if known_answer.known_answer_program(HOST) is None:
        pytest.skip("needs ziglang")
    monkeypatch.setattr(known_answer, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(known_answer, "BUILD_LIMIT_S", 1e-6)
    messages: list[str] = []

    found = check_health(here, HOST, Needs(disk_bytes=0, memory_bytes=0), messages.append)

    assert found.problems == ()
    assert messages[0].startswith("building the health check's program for host: minutes")
    assert "timed out" in messages[1]
