"""Trainings that pause: by duty cycle, temperature or battery; all sanitized."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pockengine.tests.backends.c.runner import RATE, Runner, lines, point_runner
from pockengine.tests.backends.c.sealed import texts_of

HOT, WARM, COOL = "80001\n", "76000\n", "75000\n"
"""Above 80 degrees, between the limits of a pause, and below the lower limit."""

Lines = list[dict[str, object]]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return point_runner(tmp_path_factory.mktemp("duty"))


@pytest.fixture
def zone(tmp_path: Path) -> Path:
    """A file in the format of a thermal zone."""
    path = tmp_path / "temp"
    path.write_text(COOL)
    return path


def put(path: Path, text: str) -> None:
    """Replace a file atomically, so that every read finds a number."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def steps(records: Lines) -> Lines:
    return [{**line, "ns": 0} for line in records if "step" in line]


def watch(
    runner: Runner,
    meanwhile: Callable[[subprocess.Popen[str], dict[str, object]], None],
    *more: object,
) -> tuple[Lines, int]:
    """Train; call `meanwhile` with each line when it arrives; return all lines and the status."""
    command = [runner.path, "train", "--weights", runner.weights, "--data", runner.data]
    command += ["--lr", RATE, *more]
    records: Lines = []
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            records.append(json.loads(line))
            meanwhile(process, records[-1])
    return records, process.returncode


def test_a_duty_rests_behind_each_step_and_changes_none(runner: Runner) -> None:
    count, percent = 30, 5
    expected = lines(runner.train(count))
    begin = time.monotonic()
    records = lines(runner.train(count, "--duty", percent))
    took = time.monotonic() - begin
    assert steps(records) == steps(expected)
    computed = sum(int(str(line["ns"])) for line in records if "step" in line) / 1e9
    last = int(str(records[count - 1]["ns"])) / 1e9  # no pause after it
    assert took >= (computed - last) * 100 / percent


def test_a_pause_waits_for_the_device_to_cool_and_changes_no_step(
    runner: Runner, zone: Path
) -> None:
    put(zone, HOT)
    cooled = []

    def cool(_: object, line: dict[str, object]) -> None:
        if "paused" in line:
            put(zone, WARM)
            time.sleep(1.5)  # the runner checks every second
            cooled.append(time.monotonic())
            put(zone, COOL)
        if line.get("step") == 1:
            assert time.monotonic() >= cooled[0]

    records, status = watch(runner, cool, "--steps", 4, "--pause-above", 80, "--thermal", zone)
    assert status == 0
    assert records[0] == {"watching": str(zone), "temperature": 80.001}
    why = "80.001 C is above 80; it continues at 75"
    assert records[1] == {"paused": True, "after": 0, "path": str(zone), "why": why}
    assert {**records[2], "ns": 0} == {"went_on": True, "after": 0, "ns": 0}
    assert int(str(records[2]["ns"])) >= 1.5e9
    assert steps(records) == steps(lines(runner.train(4)))
    assert sum("paused" in line for line in records) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_pause_and_saves(
    runner: Runner, zone: Path, tmp_path: Path, number: signal.Signals
) -> None:
    saved = tmp_path / "saved"

    def stop(process: subprocess.Popen[str], line: dict[str, object]) -> None:
        if line.get("step") == 3:
            put(zone, HOT)
        if "paused" in line:
            process.send_signal(number)

    more = ("--pause-above", 80, "--thermal", zone, "--save", saved)
    records, status = watch(runner, stop, "--steps", 1_000_000, *more)
    assert status == 5
    paused, end = (next(line for line in records if key in line) for key in ("paused", "saved"))
    assert paused["after"] == end["after"] == len(steps(records)) >= 3
    assert texts_of(saved)["pockengine.steps"] == str(end["after"])
    assert not any("went_on" in line for line in records)


def test_a_signal_before_the_first_step_saves_the_beginning(
    runner: Runner, zone: Path, tmp_path: Path
) -> None:
    put(zone, HOT)
    saved = tmp_path / "saved"

    def stop(process: subprocess.Popen[str], line: dict[str, object]) -> None:
        if "paused" in line:
            process.send_signal(signal.SIGTERM)

    more = ("--pause-above", 80, "--thermal", zone, "--save", saved)
    records, status = watch(runner, stop, "--steps", 3, *more)
    assert (status, steps(records)) == (5, [])
    assert texts_of(saved)["pockengine.steps"] == "0"
    again = lines(runner.train(3, "--save", saved, "--resume"))
    assert steps(again) == steps(lines(runner.train(3)))


def test_a_low_battery_pauses_until_it_is_charged(runner: Runner, tmp_path: Path) -> None:
    charge = tmp_path / "capacity"
    charge.write_text("96\n")

    def load(_: object, line: dict[str, object]) -> None:
        if "paused" in line:
            put(charge, "100\n")

    more = ("--pause-below", 97, "--battery", charge)
    records, status = watch(runner, load, "--steps", 2, *more)
    assert (status, records[0]) == (0, {"watching": str(charge), "charge": 96})
    assert records[1]["why"] == "96 % is below 97; it continues at 100"
    assert steps(records) == steps(lines(runner.train(2)))


def test_a_file_that_is_no_gauge_is_refused_before_the_training(
    runner: Runner, zone: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    heat = ("--pause-above", 80, "--thermal")
    for text, words in {
        "warm": '"warm", and a temperature is a whole number from -100000 to 300000',
        "41.5\n": '"41.5"',
        "": '""',
        "4200000\n": '"4200000"',
    }.items():
        zone.write_text(text)
        refused(runner, words, *heat, zone)
    refused(runner, os.strerror(2), *heat, tmp_path / "absent")
    refused(runner, "Is a directory", *heat, tmp_path)
    refused(runner, '""', *heat, tmp_path / "fifo")
    refused(runner, "File name too long", *heat, "x" * 5000)
    refused(
        runner, "a charge is a whole number from 0 to 100", *("--pause-below", 9, "--battery", zone)
    )


def refused(runner: Runner, words: str, *more: object) -> None:
    done = runner.train(2, *more)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert words in done.stderr
    assert "--thermal" in done.stderr or "--battery" in done.stderr


def test_wrong_usage_is_reported(runner: Runner, zone: Path) -> None:
    for more in (
        ("--thermal", zone),
        ("--battery", zone),
        ("--duty", 0),
        ("--duty", 101),
        ("--pause-above", "hot"),
    ):
        assert runner.train(1, *more).returncode == 2, more


def test_a_gauge_that_fails_ends_the_training_saved(
    runner: Runner, zone: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"

    def lose(_: object, line: dict[str, object]) -> None:
        if line.get("step") == 3:
            zone.unlink()

    more = ("--pause-above", 80, "--thermal", zone, "--save", saved)
    records, status = watch(runner, lose, "--steps", 1_000_000, *more)
    assert status == 1
    assert texts_of(saved)["pockengine.steps"] == str(len(steps(records)))


def test_the_first_zone_and_battery_that_can_be_read_are_found(
    runner: Runner, tmp_path: Path
) -> None:
    thermal, power = tmp_path / "thermal", tmp_path / "power"
    for place, text in {
        thermal / "cooling_device0" / "temp": "1000",
        thermal / "thermal_zone0" / "temp": "unknown",
        thermal / "thermal_zone1" / "temp": "40000",
        thermal / "thermal_zone2" / "temp": "90000",
        power / "AC" / "online": "1",
        power / "battery" / "capacity": "50",
    }.items():
        place.parent.mkdir(parents=True)
        place.write_text(text)
    classes = {thermal: Path("/sys/class/thermal"), power: Path("/sys/class/power_supply")}
    if not all(place.is_dir() for place in classes.values()):
        pytest.skip("this system has no /sys/class/thermal and power_supply")
    binds = " && ".join(f"mount --bind {own} {place}" for own, place in classes.items())
    mounted = ["unshare", "-rm", "sh", "-c"]
    if subprocess.run([*mounted, binds], capture_output=True, check=False).returncode != 0:
        pytest.skip("no user namespaces here: nothing can be mounted")
    script = f"{binds} && exec {runner.path} train --weights {runner.weights} --data {runner.data}"
    script += f" --steps 1 --lr {RATE} --pause-above 80 --pause-below 20"
    done = subprocess.run([*mounted, script], capture_output=True, text=True, check=False)
    assert [line for line in lines(done) if "watching" in line] == [
        {"watching": "/sys/class/thermal/thermal_zone1/temp", "temperature": 40},
        {"watching": "/sys/class/power_supply/battery/capacity", "charge": 50},
    ]
