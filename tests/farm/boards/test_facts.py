"""Facts that boards report: this machine's own, and parsed reports of other hardware."""

import os
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pockengine.errors import FarmError
from pockengine.farm.boards.conditions import Conditions
from pockengine.farm.boards.facts import ask, parse, recognize
from pockengine.farm.transports.local import LocalTransport
from pockengine.tests.farm.helpers import script

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


def test_facts_of_this_machine() -> None:
    with closing(LocalTransport("here")) as transport:
        facts = ask(transport)

    assert facts.system
    assert facts.cores
    assert facts.clock_s
    assert facts.disk_bytes


def test_raspberry_pi_is_recognized() -> None:
    facts = parse(PI, "pi")

    assert recognize(facts) == "rpi4"
    assert (facts.governor, facts.frequency_mhz, facts.cores) == ("ondemand", 1500.0, 4)
    assert facts.temperature_c == 51.6
    assert facts.flags == 0x50005
    assert "temperature: 51.6 °C" in facts.describe()


@pytest.mark.parametrize(
    ("report", "device"),
    [
        ("model NVIDIA Jetson AGX Orin Developer Kit", "jetson-orin"),
        ("model Raspberry Pi 5 Model B Rev 1.0", "rpi5"),
        ("cpu Apple M1 Pro", "apple-m1"),
        ("cpu model name Some x86 CPU", None),
    ],
)
def test_other_devices_are_recognized_by_their_files(report: str, device: str | None) -> None:
    assert recognize(parse(report, "b")) == device


def test_full_disk_and_wrong_clock_have_warnings_with_a_fix() -> None:
    facts = parse("system Linux\nclock 1000\ndisk_kb 2048", "pi")
    disk, clock = facts.warnings(now=10_000.0)
    assert re.match("free disk: 2 MB in the work folder.* another workdir", disk)
    assert re.match("clock: 9,000 s behind this machine's: .*timedatectl", clock)
    assert parse("system Linux\nclock 1000\ndisk_kb 999999", "pi").warnings(now=1100.0) == []


def test_missing_facts_are_unknown() -> None:
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
def test_error_for_a_malformed_number_names_the_board(line: str) -> None:
    with pytest.raises(FarmError, match=r"^b: says"):
        parse(line, "b")


ANDROID = {
    "getprop": """case $1 in
  ro.product.manufacturer) echo Google;; ro.product.model) echo 'Pixel 9';;
  ro.product.cpu.abi) echo arm64-v8a;; ro.build.version.release) echo 15;;
esac""",
    "dumpsys": """case $1 in
  battery) printf '  AC powered: false\\n  USB powered: true\\n  level: 9\\n  temperature: 310\\n';;
  thermalservice) printf 'IsStatusOverride: false\\nThermal Status: 2\\n';;
esac""",
}


def test_phone_reports_model_battery_and_fast_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in ANDROID.items():
        script(tmp_path, text, name)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    _write(
        tmp_path,
        {
            "proc/cpuinfo": "Features\t: fp asimd i8mm bf16\nCPU part\t: 0xd80\n",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": "1900000\n",
            "sys/devices/system/cpu/cpufreq/policy7/scaling_max_freq": "3100000\n",
            "sys/class/thermal/thermal_zone0/type": "BIG_CPU\n",
            "sys/class/thermal/thermal_zone0/temp": "44000\n",
            "sys/class/thermal/thermal_zone1/type": "usb-limit\n",
            "sys/class/thermal/thermal_zone1/temp": "120000\n",
        },
    )

    with closing(LocalTransport("phone")) as transport:
        facts = ask(transport, str(tmp_path))

    assert facts.model == "Google Pixel 9, Android arm64-v8a i8mm, 15"
    assert recognize(facts) == "phone-arm64"
    assert (facts.max_frequency_mhz, facts.temperature_c) == (3100.0, 44.0)
    assert (facts.battery, facts.plugged, facts.thermal) == (9, True, 2)
    assert "battery: 9 %, plugged in" in facts.describe()
    assert Conditions([facts]).problems() == ["it throttled (Android's thermal status 2)"]
    assert replace(facts, plugged=False).warnings(facts.clock_s or 0) == [
        "battery: 9 %: plug it in, or it slows down"
    ]


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_sensors_are_read_from_linux_files(tmp_path: Path) -> None:
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
    _write(tmp_path, files)

    with closing(LocalTransport("pi")) as transport:
        facts = ask(transport, str(tmp_path))

    assert (facts.model, facts.cpu) == ("Raspberry Pi 4 Model B", "CPU part 0xd08")
    assert (facts.governor, facts.frequency_mhz) == ("performance", 1200.0)
    assert (facts.temperature_c, facts.throttled) == (61.0, 5)
