"""Instruction counts of a static aarch64 program whose marked regions have known lengths."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from pockengine.devices.isa import Counter
from pockengine.errors import FarmError
from pockengine.farm.references import instructions
from pockengine.farm.references.instructions import (
    count,
    count_twice,
    plugin_library,
    read_report,
)
from pockengine.tests.farm.guest_program import build_guest

SOURCE = Path(__file__).with_name("region.c")
LONG_LOOP, SHORT_LOOP = 2001, 11


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_guest(SOURCE, tmp_path_factory.mktemp("region"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_regions_count_exactly_the_instructions_between_marks(program: str) -> None:
    assert count([program, "l"], marks=1).regions == (LONG_LOOP,)


def test_regions_are_counted_in_order(program: str) -> None:
    found = count([program, "bleb"])

    assert found.regions == (SHORT_LOOP, LONG_LOOP, 0, SHORT_LOOP)
    assert found.total > sum(found.regions)


def test_programs_without_marks_have_only_a_total(program: str) -> None:
    found = count([program])

    assert found.regions == ()
    assert found.total > 0


def test_counts_are_deterministic(program: str) -> None:
    first, second = count([program, "lbl"]), count([program, "lbl"])

    assert first == second
    assert count_twice([program, "lbl"], marks=3) == first


def test_nondeterministic_programs_are_refused(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = iter("lb")
    real = instructions.count
    monkeypatch.setattr(
        instructions, "count", lambda command, *a, **k: real([*command, next(letters)], *a, **k)
    )

    with pytest.raises(FarmError, match=r"\[2001\] and \[11\].*one thread"):
        count_twice([program])


@pytest.mark.parametrize(
    ("letters", "message"),
    [
        ("oo", "opened inside a region"),
        ("c", "closed that was not open"),
        ("lo", "ended inside a region"),
        ("f", "ended with status 3"),
    ],
)
def test_misplaced_mark_or_failing_program_is_an_error(
    program: str, letters: str, message: str
) -> None:
    with pytest.raises(FarmError, match=message):
        count([program, letters])


def test_wrong_number_of_regions_is_an_error(program: str) -> None:
    with pytest.raises(FarmError, match="marked 2 regions, 3 were expected"):
        count([program, "bb"], marks=3)


def test_endless_programs_are_killed(program: str) -> None:
    with pytest.raises(FarmError, match=r"ran over 0.5 s"):
        count([program, "w"], timeout=0.5)


def test_missing_program_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FarmError, match="nothing-here ended with status"):
        count([str(tmp_path / "nothing-here")])


def test_error_names_a_missing_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "COUNTERS", {"aarch64": Counter("qemu-nothing", "none")})

    with pytest.raises(FarmError, match=r"qemu-nothing is not installed.*apt-get install"):
        count(["/bin/true"])


def test_error_for_an_emulator_without_plugins_has_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = tmp_path / "qemu-aarch64"
    emulator.write_text("#!/bin/sh\necho '-cpu  QEMU_CPU  model'\n")
    emulator.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    with pytest.raises(
        FarmError, match=r"qemu-aarch64 was built without TCG plugins.*--enable-plu"
    ):
        count(["/bin/true"])


@pytest.mark.parametrize(("version", "least"), [(1, 0), (2, 2), (3, 2), (6, 2), (7, 2)])
def test_plugin_supports_every_api_version(version: int, least: int, tmp_path: Path) -> None:
    qemu, report = tmp_path / "qemu", tmp_path / "report"
    versions = (f"-DAPI={version}", f"-DLEAST={least}")
    source = Path(__file__).with_name("qemu.c")
    subprocess.run(["cc", *versions, "-rdynamic", str(source), "-o", str(qemu), "-ldl"], check=True)

    subprocess.run([str(qemu), str(plugin_library()), f"out={report}"], check=True)

    assert read_report(report) == ((2,), 3)


def test_comma_in_a_path_does_not_split_the_plugin_option(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a,b"))

    assert count([program, "b"]).regions == (SHORT_LOOP,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("region 5\n", "cut off"),
        ("", "cut off"),
        ("end\n", "cut off"),
        ("region five\ntotal 9\nend\n", "damaged"),
        ("error too bad\n", "too bad"),
    ],
)
def test_damaged_report_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    report = tmp_path / "report"
    report.write_text(text)

    with pytest.raises(FarmError, match=message):
        read_report(report)


def test_killed_programs_have_no_count(program: str) -> None:
    with pytest.raises(FarmError, match=f"status -{signal.SIGSEGV.value}|no instruction count"):
        count([program, "s"])
