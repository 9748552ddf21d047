"""The two models through the door of PyTorch."""

from collections.abc import Callable

import pytest

from pockengine.compiler.ir import Graph
from pockengine.tests.doors.measure import check
from pockengine.tests.doors.torch_door import resnet, transformer


@pytest.mark.parametrize("build", [resnet, transformer])
def test_door_comes_to_the_same_model(build: Callable[[], Graph]) -> None:
    check("torch", build.__name__, build())
