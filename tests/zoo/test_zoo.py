"""Some fast models of the zoo, of every kind; `//tests/zoo:zoo` runs all."""

import pytest

from pockengine.tests.zoo.verdict import PASSED, judge
from pockengine.tests.zoo.zoo import ZOO
from pockengine.tests.zoo.zoo_run import compared

SOME = [
    "attention",
    "bert",
    "deberta-v2",
    "deepseek-v3.2",
    "llama",
    "longformer-fills-in",
    "policy",
    "routed",
    "swin-drop-path",
    "transformer",
    "vae-distributions",
    "vit",
    "weight-norm-by-hooks",
    "xlm",
]


@pytest.mark.parametrize("name", SOME)
def test_training_matches_pytorch(name: str) -> None:
    verdict = judge(ZOO[name], compared)

    assert verdict.kind == PASSED, verdict.words
