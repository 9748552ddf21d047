"""Trainings that pause, by duty cycle, temperature or battery, give the same result."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import pockengine
from pockengine.backends.training.duty import DutyCycle
from pockengine.backends.training.gauges import TEMPERATURE, find
from pockengine.backends.training.loop import Step
from pockengine.errors import RuntimeFailure
from pockengine.tests.backends.c.resuming import same
from pockengine.tests.backends.training.nets import compiled, data

ROWS, STEPS = data(24), 6  # of one epoch
HOT, WARM, COOL = "80001\n", "76000\n", "75000\n"
"""Above 80 degrees, between the limits of a pause, and below the lower limit."""


@pytest.fixture
def zone(tmp_path: Path) -> Path:
    """A file in the format of a thermal zone."""
    path = tmp_path / "temp"
    path.write_text(COOL)
    return path


class After(pockengine.Callback):
    """Calls a function after a step."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self._number, self._act = number, act

    def on_step(self, step: Step) -> None:
        if step.number == self._number:
            self._act()


def test_rests_change_no_step_and_take_their_share_of_the_time(zone: Path) -> None:
    expected, net = compiled(), compiled()
    history = expected.fit(ROWS, epochs=1, lr=0.02)
    slow = After(2, lambda: time.sleep(0.2))
    duty = DutyCycle(25, pause_above=80, thermal=zone)
    begin = time.monotonic()
    found = net.fit(ROWS, epochs=1, lr=0.02, callbacks=[slow, duty])

    assert time.monotonic() - begin >= 0.8
    assert found.steps == history.steps
    same(net.trained.params(), expected.trained.params())


def test_a_pause_ends_when_the_device_has_cooled(zone: Path) -> None:
    messages: list[str] = []

    def say(text: str) -> None:
        messages.append(text)
        if len(messages) == 1:
            zone.write_text(WARM)
            threading.Timer(1.5, zone.write_text, [COOL]).start()  # it checks every second

    expected, net = compiled(), compiled()
    history = expected.fit(ROWS, epochs=1, lr=0.02)
    heated = After(3, lambda: zone.write_text(HOT))
    duty = DutyCycle(pause_above=80, thermal=zone, say=say)
    found = net.fit(ROWS, epochs=1, lr=0.02, callbacks=[heated, duty])

    assert messages[0] == f"paused: {zone} says 80.001 C, above 80; it continues at 75"
    assert re.fullmatch(r"continued after \d+ s", messages[1])
    assert int(messages[1].split()[-2]) >= 2
    assert len(messages) == 2
    assert found.steps == history.steps


def test_a_low_battery_pauses_until_it_is_charged(tmp_path: Path) -> None:
    charge = tmp_path / "capacity"
    charge.write_text("96\n")
    messages: list[str] = []

    def say(text: str) -> None:
        messages.append(text)
        charge.write_text("100\n")

    duty = DutyCycle(pause_below=97, battery=charge, say=say)
    assert len(compiled().fit(ROWS, epochs=1, lr=0.02, callbacks=[duty]).steps) == STEPS
    assert messages[0] == f"paused: {charge} says 96 %, below 97; it continues at 100"


def test_a_signal_ends_a_pause_saved(zone: Path, tmp_path: Path) -> None:
    def interrupt(_: str) -> None:
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()

    heated = After(3, lambda: zone.write_text(HOT))
    duty = DutyCycle(pause_above=80, thermal=zone, say=interrupt)
    place = pockengine.Checkpoints(tmp_path / "kept")
    with pytest.raises(KeyboardInterrupt):
        compiled().fit(ROWS, epochs=1, lr=0.02, checkpoint=place, callbacks=[heated, duty])

    assert place.steps()[0] == 3


def test_a_file_that_is_lost_ends_the_training_saved(zone: Path, tmp_path: Path) -> None:
    lost = After(3, zone.unlink)
    place = pockengine.Checkpoints(tmp_path / "kept")
    duty = DutyCycle(pause_above=80, thermal=zone)
    with pytest.raises(RuntimeFailure, match=r"cannot read the temperature from .*temp: No such"):
        compiled().fit(ROWS, epochs=1, lr=0.02, checkpoint=place, callbacks=[lost, duty])

    assert place.steps()[0] == 3


def test_a_file_that_is_no_gauge_is_refused_at_once(zone: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for text in ("warm", "41.5\n", "", "4200000\n", "1" * 40, "\udcff"):
        zone.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(RuntimeFailure, match="a temperature is a whole number from -100000"):
            DutyCycle(pause_above=80, thermal=zone)
    for path in (tmp_path / "absent", tmp_path, tmp_path / "fifo"):
        with pytest.raises(RuntimeFailure, match=r"cannot read .*; name a file .* `thermal`"):
            DutyCycle(pause_above=80, thermal=path)


@pytest.mark.parametrize(
    "given",
    [
        {"percent": 0},
        {"percent": 101},
        {"pause_below": 101},
        {"thermal": "temp"},
        {"battery": "capacity"},
    ],
)
def test_wrong_numbers_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(RuntimeFailure, match=r"at most 100|a limit"):
        DutyCycle(**given)


def test_the_first_zone_that_can_be_read_is_found(tmp_path: Path) -> None:
    here = replace(TEMPERATURE, folder=tmp_path)
    with pytest.raises(RuntimeFailure, match=f"no temperature can be read below {tmp_path}"):
        find(here, None)
    for name, text in {"thermal_zone0": "off", "thermal_zone2": "9", "thermal_zone1": "8"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "temp").write_text(text)

    assert find(here, None) == tmp_path / "thermal_zone1" / "temp"
