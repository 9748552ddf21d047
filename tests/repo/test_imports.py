"""The package has its own name under Bazel, and the machine's own packages are not visible."""

import re
import sys

import numpy as np

import pockengine
from pockengine.devices.schema import load_device


def test_package_is_imported_from_the_runfiles() -> None:
    assert ".runfiles/pockengine" in str(pockengine.__file__)


def test_device_files_are_found() -> None:
    assert load_device("rpi4").cpu.model == "cortex-a72"


def test_interpreter_sees_only_locked_packages() -> None:
    assert ".runfiles/" in sys.executable
    assert sys.prefix != sys.base_prefix
    # A module extension adds a prefix to the names of its repositories.
    assert re.search(r"\.runfiles/[^/]*\bpypi/", str(np.__file__))
    assert not [path for path in sys.path if path.endswith("dist-packages")]
