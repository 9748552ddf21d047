"""The devices whose backends must pass the same tests of whole trainings."""

import pytest

from pockengine.tests.backends.toy import DEVICE

EVERY_BACKEND = pytest.mark.parametrize(
    "device", [pytest.param("host", id="c"), pytest.param(DEVICE, id="toy")]
)
