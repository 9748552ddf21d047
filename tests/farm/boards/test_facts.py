"""What boards say of themselves: real ones answer, and answers of other hardware are read."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from pockengine.errors import FarmError
from pockengine.farm.boards.facts import ask, parse, recognise
from pockengine.farm.transports.local import LocalTransport

PI = """system Linux
machine aarch64
kernel 6.6.31+rpt-rpi-v8
clock 1767323045
disk_kb 24000000
model Raspberry Pi 4 Model B Rev 1.4
cpu CPU part 0xd08
cores 4
memory_kb 3884000
free_kb 3500000
boot 3f6f0e04-0c5f-4b38-a7c8-5d2a8d0f0c11
load 0.10
governor ondemand
khz 1500000
max_khz 1500000
millidegrees 48200
millidegrees 51600
pi_throttled 0x50005
"""


def test_this_machine_answers() -> None:
    with closing(LocalTransport("here")) as transport:
        facts = ask(transport)

    assert facts.system
    assert facts.cores
    assert facts.clock_s
    assert facts.disk_bytes


def test_a_raspberry_pi_is_read_and_recognised() -> None:
    facts = parse(PI, "pi")

    assert recognise(facts) == "rpi4"
    assert (facts.governor, facts.frequency_mhz, facts.cores) == ("ondemand", 1500.0, 4)
    assert facts.temperature_c == 51.6
    assert facts.flags == 0x50005
    assert "temperature: 51.6 °C" in facts.describe()


@pytest.mark.parametrize(
    ("said", "device"),
    [
        ("model NVIDIA Jetson AGX Orin Developer Kit", "jetson-orin"),
        ("model Raspberry Pi 5 Model B Rev 1.0", "rpi5"),
        ("cpu Apple M1 Pro", "apple-m1"),
        ("cpu model name Some x86 CPU", None),
    ],
)
def test_other_devices_are_recognised_by_what_their_files_say(
    said: str, device: str | None
) -> None:
    assert recognise(parse(said, "b")) == device


def test_a_full_disk_and_a_wrong_clock_are_warned_of_with_a_fix() -> None:
    facts = parse("system Linux\nclock 1000\ndisk_kb 2048", "pi")
    disk, clock = facts.warnings(now=10_000.0)
    assert re.match("free disk: 2 MB in the work folder.* another workdir", disk)
    assert re.match("clock: 9,000 s behind this machine's: .*timedatectl", clock)
    assert parse("system Linux\nclock 1000\ndisk_kb 999999", "pi").warnings(now=1100.0) == []


def test_what_is_not_said_is_not_known() -> None:
    facts = parse("system Linux\n", "b")

    assert facts.temperature_c is None
    assert facts.governor == ""
    assert facts.describe() == ["CPU: ", "kernel: Linux "]


@pytest.mark.parametrize(
    "line",
    [
        "clock soon",
        "millidegrees",
        "disk_kb 1e",
        "pi_throttled 0xzz",
        "pi_throttled -0x1",
        "cores inf",
        "cores nan",
        "clock 1e400",
        "memory_kb 1e30",
    ],
)
def test_an_answer_that_is_no_number_names_the_board(line: str) -> None:
    with pytest.raises(FarmError, match=r"^b: says"):
        parse(line, "b")


def test_sensors_are_read_from_the_files_that_linux_has(tmp_path: Path) -> None:
    files = {
        "proc/device-tree/model": "Raspberry Pi 4 Model B\0",
        "proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd08\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1200000\n",
        "sys/class/thermal/thermal_zone0/temp": "61000\n",
        "sys/class/thermal/thermal_zone1/temp": "45000\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "2\n",
        "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    with closing(LocalTransport("pi")) as transport:
        facts = ask(transport, str(tmp_path))

    assert (facts.model, facts.cpu) == ("Raspberry Pi 4 Model B", "CPU part 0xd08")
    assert (facts.governor, facts.frequency_mhz) == ("performance", 1200.0)
    assert (facts.temperature_c, facts.throttled) == (61.0, 5)
