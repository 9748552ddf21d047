"""A budget's shortfall is reported only as far as the seeds support it."""

import pytest

from pockengine.compiler.sparse import Scheme
from pockengine.finetune.judges import ACCURACY, HELD_OUT, Judge
from pockengine.finetune.race import Standing
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.shortfall import Shortfall

RECIPE = Recipe(0.1, 1)


def shortfall(
    chosen: tuple[float, ...], full: tuple[float, ...], judge: Judge = ACCURACY
) -> Shortfall:
    return Shortfall(
        Standing(Scheme("searched-1", ()), RECIPE, chosen),
        Standing(Scheme("full", ()), RECIPE, full),
        12_345,
        judge,
    )


def test_significant_shortfall_is_attributed_to_the_budget() -> None:
    found = shortfall((0.83, 0.832, 0.834), (0.845, 0.847, 0.843))

    assert found.lost == pytest.approx(0.013)
    assert found.error == pytest.approx((2 * 0.002**2 / 3) ** 0.5)
    assert str(found) == (
        "Full fine-tuning, beyond the budget with 12,345 bytes, reaches 84.50 %: this budget costs "
        "1.30 points; a larger one may win them back."
    )


@pytest.mark.parametrize(
    ("chosen", "full", "message"),
    [
        ((0.80, 0.84), (0.83, 0.83), "no difference that 2 seeds show."),
        ((0.85, 0.851), (0.83, 0.831), "reaches 83.05 %, 2.00 points less."),
        ((0.80,), (0.83, 0.84), "3.50 points more; one seed does not tell that from chance."),
        ((0.84,), (0.83,), "1.00 points less; one seed does not tell that from chance."),
        ((0.5, 0.5), (0.5, 0.5), "no difference"),
    ],
)
def test_insignificant_differences_are_reported_as_such(
    chosen: tuple[float, ...], full: tuple[float, ...], message: str
) -> None:
    assert message in str(shortfall(chosen, full))


def test_lower_loss_is_better() -> None:
    costly = shortfall((-2.5, -2.502), (-2.3, -2.302), HELD_OUT)
    worse = shortfall((-2.1, -2.102), (-2.3, -2.302), HELD_OUT)

    assert str(costly) == (
        "Full fine-tuning, beyond the budget with 12,345 bytes, reaches a loss of 2.3010 "
        "(perplexity 9.984): this budget costs 20.00 hundredths of held-out loss; a larger one may "
        "win them back."
    )
    assert str(worse).endswith("20.00 hundredths of held-out loss worse.")
