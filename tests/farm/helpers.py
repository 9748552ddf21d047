"""Helpers of the farm's tests: a record, a job's program, a wait, a mark for QEMU."""

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pockengine.farm.images import cpio
from pockengine.farm.images.image import Image, ensure_image
from pockengine.farm.results.results import Record
from pockengine.farm.transports.emulated import QEMU

needs_qemu = pytest.mark.skipif(
    shutil.which(QEMU) is None, reason=f"{QEMU} is not installed (./bazelw installs it)"
)

# Names and arguments that wrong quoting would run, split, expand or lose.
HOSTILE = [
    "a b",
    "$(touch /tmp/pwned)",
    "`id`",
    "a;b",
    "'",
    '"',
    "*",
    "\\",
    "ä\n\t",
    "~",
    "#x",
    "&&",
]


def eventually(question: Callable[[], bool], within_s: float = 120.0) -> bool:
    """Return whether `question` becomes true within `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not question():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def record(**changes: object) -> Record:
    """Return a valid record with some fields changed."""
    values: dict[str, object] = {
        "time": "2026-01-02T03:04:05+00:00",
        "commit": "abc",
        "device": "rpi4",
        "board": "rpi4-qemu",
        "emulated": True,
        "model": "mobilenet_v2",
        "batch": 4,
        "dtype": "f32",
        "scheme": "full",
        "threads": 1,
        "engine": "pockengine",
        "engine_version": "0.1.0",
        "metric": "guest_instructions",
        "unit": "instructions",
        "value": 2.0,
        "min": 1.0,
        "max": 3.0,
        "n": 10,
        "ok": True,
    }
    return Record(**{**values, **changes})


def script(folder: Path, text: str, name: str = "program.sh") -> Path:
    """Write a shell script, which stands in for a binary on any board."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def image_with_init(folder: Path, init: str) -> Image:
    """Return an image with another init, to test failing boots."""
    real = ensure_image()
    (folder / "initrd").write_bytes(cpio.pack({"init": cpio.file_entry(init.encode(), 0o755)}))
    # The kernel unpacks the archives in order: a later file replaces an earlier one.
    joined = folder / "joined"
    first = real.initrd.read_bytes()
    padding = b"\0" * (-len(first) % 4)
    joined.write_bytes(first + padding + (folder / "initrd").read_bytes())
    return replace(real, initrd=joined)
