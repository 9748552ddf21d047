"""Some models of the zoo of this framework; `//tests/zoo:onnx_zoo` has all."""

import pytest

from pockengine.tests.zoo.onnx_zoo import ZOO
from pockengine.tests.zoo.zoo_doors import PASSED, judge

SOME = ["attention", "branch", "gru", "logistic-regression", "lstm-tagger", "messages"]


@pytest.mark.parametrize("name", SOME)
def test_model_takes_the_step_of_its_framework(name: str) -> None:
    verdict = judge(ZOO[name])

    assert verdict.kind == PASSED, verdict.words
