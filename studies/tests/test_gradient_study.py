"""TVM's own gradients compared with ours: the same losses, and unsupported ops."""

import pytest

from pockengine.errors import RuntimeFailure
from pockengine.studies.tvm_gradient import study
from pockengine.studies.tvm_gradient.study import ENGINES, NETS, measure


def test_all_engines_train_as_pytorch_does() -> None:
    found = measure(NETS[0], rounds=1)
    assert [each.engine for each in found] == list(ENGINES)
    assert all(each.times is not None and each.times[1] > 0 for each in found)


def test_what_tvm_has_no_gradient_of_is_reported_by_its_words() -> None:
    own, scheduled, *ours = measure(NETS[3], rounds=1)
    for each in (own, scheduled):
        assert each.times is None
        assert "derives no gradient" in each.refused
    assert all(each.times is not None for each in ours)


def test_another_loss_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "_by_torch", lambda *_: [1.0] * study.CHECKED)
    with pytest.raises(RuntimeFailure, match=r"perceptron of 784.*PyTorch's \[1\.0"):
        measure(NETS[0], rounds=1)
