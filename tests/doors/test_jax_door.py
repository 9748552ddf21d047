"""The two models through the door of JAX."""

from collections.abc import Callable

import pytest

from pockengine.compiler.ir import Graph
from pockengine.tests.doors.jax_door import resnet, transformer
from pockengine.tests.doors.measure import check


@pytest.mark.parametrize("build", [resnet, transformer])
def test_door_comes_to_the_same_model(build: Callable[[], Graph]) -> None:
    check("jax", build.__name__, build())
