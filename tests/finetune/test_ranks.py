"""Spearman's correlation, with and without ties."""

import pytest

from pockengine.finetune.ranks import rank_correlation


@pytest.mark.parametrize(
    ("second", "rho"), [((1, 2, 3), 1), ((3, 2, 1), -1), ((1, 1, 1), None), ((1, 3, 2), 0.5)]
)
def test_rank_correlation(second: tuple[float, ...], rho: float | None) -> None:
    assert rank_correlation((10, 20, 30), second) == (None if rho is None else pytest.approx(rho))


def test_too_few_values_have_no_correlation() -> None:
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(0.75**0.5)
