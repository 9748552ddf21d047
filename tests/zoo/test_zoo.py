"""Some fast models of the zoo, of every kind; `//tests/zoo:zoo` has all."""

import pytest

from pockengine.tests.zoo.zoo import ZOO
from pockengine.tests.zoo.zoo_run import PASSED, judge

SOME = [
    "attention",
    "bert",
    "deberta-v2",
    "llama",
    "policy",
    "routed",
    "swin-drop-path",
    "transformer",
    "vae-distributions",
    "vit",
    "weight-norm-by-hooks",
]


@pytest.mark.parametrize("name", SOME)
def test_model_trains_as_pytorch_trains_it(name: str) -> None:
    verdict = judge(name, ZOO[name])

    assert verdict.kind == PASSED, verdict.words
