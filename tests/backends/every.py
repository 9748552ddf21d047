"""The devices whose backends must pass the same tests of whole trainings."""

import pytest

from pockengine.devices import load_device
from pockengine.tests.backends.toy import DEVICE

ALONE = [pytest.param("host", id="c"), pytest.param(DEVICE, id="toy")]

EVERY_BACKEND = pytest.mark.parametrize("device", ALONE)

WITH_RUNTIMES = pytest.mark.parametrize(
    "device", [*ALONE, pytest.param(load_device("host").on("onnx"), id="onnx")]
)
"""Also devices that need a runtime's packages, for tests without a framework."""
