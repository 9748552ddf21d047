"""Some models of the zoo of this framework; `//tests/zoo:keras_zoo` has all."""

import pytest

from pockengine.tests.zoo.keras_zoo import ZOO
from pockengine.tests.zoo.zoo_doors import PASSED, judge

SOME = ["quantized", "two-heads", "u-net", "volumes"]


@pytest.mark.parametrize("name", SOME)
def test_model_takes_the_step_of_its_framework(name: str) -> None:
    verdict = judge(ZOO[name])

    assert verdict.kind == PASSED, verdict.words
