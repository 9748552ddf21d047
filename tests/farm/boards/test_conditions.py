"""Conditions of a measurement, read from the board's files while it runs.

The board is this machine. A test folder with a fixed governor, frequency and temperature stands in
for /proc and /sys.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pockengine.farm.boards.conditions import Conditions, steady_from, watched
from pockengine.farm.boards.facts import parse
from pockengine.farm.transports.local import LocalTransport
from pockengine.farm.transports.ssh import SshTransport, connect_ssh
from pockengine.farm.transports.transport import RunResult, Transport
from pockengine.tests.farm.ssh_server import Faults, serving

FREQUENCY = "sys/devices/system/cpu/cpu0/cpufreq"
Reach = Callable[[Path], AbstractContextManager[LocalTransport | SshTransport]]
THROTTLE = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
TEMPERATURE = "sys/class/thermal/thermal_zone0/temp"


class Sensors:
    """Write files like those of Linux's /proc and /sys."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.set(f"{FREQUENCY}/scaling_governor", "performance")
        self.set(f"{FREQUENCY}/scaling_cur_freq", "1500000")
        self.set(f"{FREQUENCY}/scaling_max_freq", "1500000")
        self.set(TEMPERATURE, "48000")
        self.set(THROTTLE, "2")

    def set(self, name: str, value: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


@pytest.fixture(name="sensors")
def board_files(tmp_path: Path) -> Sensors:
    return Sensors(tmp_path)


@pytest.fixture(name="board")
def this_machine() -> Iterator[LocalTransport]:
    with closing(LocalTransport("here")) as transport:
        yield transport


def wait_for(conditions: Conditions, more: int) -> None:
    """Wait for `more` further readings of the conditions."""
    target = len(conditions.facts) + more
    while len(conditions.facts) < target:
        pass


def test_undisturbed_run_is_valid_and_described(sensors: Sensors, board: LocalTransport) -> None:
    with watched(board, str(sensors.root), period_s=0.05, idle_s=0) as conditions:
        wait_for(conditions, 2)
        sensors.set(TEMPERATURE, "61000")
        wait_for(conditions, 1)

    assert conditions.problems() == []
    assert conditions.describe() == "governor performance, 1500 MHz, 48 to 61 °C"


@pytest.mark.parametrize(
    ("file", "value", "problem"),
    [
        (THROTTLE, "5", "it throttled 3 times"),
        (f"{FREQUENCY}/scaling_governor", "powersave", "its governor changed"),
        (f"{FREQUENCY}/scaling_cur_freq", "600000", "it ran at 600 of 1500 MHz"),
        (TEMPERATURE, "85000", "it was 85 °C hot"),
    ],
)
def test_disturbances_make_a_run_invalid(
    sensors: Sensors, board: LocalTransport, file: str, value: str, problem: str
) -> None:
    with watched(board, str(sensors.root), period_s=0.05, idle_s=0) as conditions:
        sensors.set(file, value)
        wait_for(conditions, 2)

    assert conditions.problems() == [problem]


@pytest.mark.parametrize(
    ("before", "after", "valid"),
    [
        ("0x0", "0x0", True),
        ("0x50000", "0x50000", True),  # in the past, since it booted
        ("0x0", "0x40000", False),
        ("0x50000", "0x50005", False),
    ],
)
def test_throttle_flags_of_a_raspberry_pi_are_read(before: str, after: str, valid: bool) -> None:
    parsed = [parse(f"pi_throttled {bits}\n", "pi") for bits in (before, after)]

    problems = Conditions(parsed).problems()

    assert (problems == []) is valid
    assert valid or "it throttled (flags" in problems[0]


def test_reboots_make_a_run_invalid() -> None:
    parsed = [parse(f"boot {name}\n", "pi") for name in ("a", "b")]

    assert Conditions(parsed).problems() == ["it rebooted"]


def test_silent_boards_are_valid_and_unread_ones_are_not() -> None:
    assert Conditions([parse("system Linux\n", "b")] * 3).problems() == []
    assert Conditions([parse("", "b")]).describe() == "the board reports no conditions"
    assert Conditions().problems() != []


class Shared:
    """A board whose CPUs other processes use in part, with one share per check."""

    def __init__(self, transport: Transport, sensors: Sensors, shares: list[float]) -> None:
        self._transport, self._sensors, self._shares = transport, sensors, shares
        self.board, self.workdir = transport.board, transport.workdir

    def run(self, argv: Sequence[str], **more: Any) -> RunResult:
        """Advance the board's CPU times between the two readings of the command."""
        if "rest" not in argv:
            return self._transport.run(argv, **more)
        used = int(100 * self._shares.pop(0))
        self._sensors.set("proc/stat", "cpu  500 0 50 1000 10 0 0 0 0 0")
        later = f"cpu  {500 + used} 0 50 {1100 - used} 10 0 0 0 0 0"
        passing = f"echo '{later}' > '{self._sensors.root}/proc/stat'"
        script = argv[2].replace('look "$1"; sleep', f'look "$1"; {passing}; sleep')
        return self._transport.run([*argv[:2], script, *argv[3:]], **more)


@contextmanager
def by_ssh(folder: Path) -> Iterator[SshTransport]:
    with serving(folder, Faults()) as address, closing(connect_ssh(address)) as transport:
        yield transport


def locally(_: Path) -> AbstractContextManager[LocalTransport]:
    return closing(LocalTransport("here"))


@pytest.mark.parametrize("reached", [locally, by_ssh])
@pytest.mark.parametrize(
    ("shares", "mark"),
    [
        ([0.05, 0.05], None),
        ([0.4, 0.0], "busy machine: others took 40% of its CPUs"),
        ([0.0, 0.5], "busy machine: others took 50% of its CPUs"),
    ],
)
def test_cpu_use_by_others_is_marked(
    tmp_path: Path, sensors: Sensors, reached: Reach, shares: list[float], mark: str | None
) -> None:
    with reached(tmp_path) as transport:
        board = Shared(transport, sensors, list(shares))
        with watched(board, str(sensors.root), idle_s=0) as conditions:
            pass

    assert conditions.busy == mark
    assert conditions.problems() == []


def test_boards_without_cpu_counts_have_no_mark(sensors: Sensors, board: LocalTransport) -> None:
    for text in (None, "cpu of another system", "cpu 1 2"):
        if text:
            sensors.set("proc/stat", text)
        with watched(board, str(sensors.root), idle_s=0) as conditions:
            pass

        assert conditions.busy is None


def test_warm_up_ends_when_times_are_steady() -> None:
    source = random.Random(0)
    calm = [10 * source.uniform(0.995, 1.005) for _ in range(12)]

    assert steady_from(calm) == 0
    assert steady_from([30.0, 20.0, 15.0, *calm]) in (2, 3)
    assert steady_from([float(i) for i in range(1, 21)]) is None
    assert steady_from([]) is None
