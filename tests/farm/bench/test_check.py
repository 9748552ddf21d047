import numpy as np
import pytest

from pockengine.errors import FarmError
from pockengine.farm.bench.check import Check, compare, loss_error

LOSSES = [0.9, 0.8, 0.7]
START = {"a.weight": np.array([1.0, -2.0, 0.5]), "a.bias": np.array([0.0, 0.0])}
EXPECTED = {"a.weight": np.array([1.01, -2.01, 0.5]), "a.bias": np.array([1e-3, -1e-3])}


def check(losses: list[float] = LOSSES, **changed: np.ndarray) -> Check:
    tensors = {**EXPECTED, **{name.replace("_", "."): array for name, array in changed.items()}}
    return compare(losses, tensors, LOSSES, EXPECTED, START, list(EXPECTED))


def test_equal_runs_pass() -> None:
    assert check() == Check(0.0, 0.0, 0.0, ())


def test_rounding_passes() -> None:
    assert not check([0.9, 0.80001, 0.7], a_weight=EXPECTED["a.weight"] * (1 + 1e-6)).problems


def test_error_names_the_step_of_a_wrong_loss() -> None:
    (problem,) = check([0.9, 0.8002, 0.7002]).problems

    assert problem == "the loss of step 2 is off by 2.5e-04 where 0.0001 is allowed, and 1 more"


def test_error_names_a_wrong_weight() -> None:
    problems = check(a_weight=np.array([1.01, -2.01, 0.51])).problems

    assert problems[0].startswith("a.weight is off by 5.0e-03 where 0.001 is allowed")


def test_missing_updates_are_found_even_for_small_changes() -> None:
    expected = {"w": np.array([1.0, 2.0 + 1e-4])}
    start = {"w": np.array([1.0, 2.0])}

    found = compare(LOSSES, start, LOSSES, expected, start, ["w"])

    assert found.weight_error < 1e-3
    assert found.problems == ("the change of w is off by 1.0e+00 where 0.05 is allowed",)


def test_changes_of_few_roundings_are_not_checked() -> None:
    unit = 2.0**-22  # one ulp of 2.0 in f32
    start, expected = {"w": np.array([2.0])}, {"w": np.array([2.0 + 8 * unit])}

    for off, wrong in ((2, False), (4, True)):
        found = {"w": expected["w"] + off * unit}
        assert bool(compare(LOSSES, found, LOSSES, expected, start, ["w"]).problems) == wrong


def test_changed_frozen_tensors_are_found() -> None:
    moved = {"w": np.array([1.0]), "frozen": np.array([1.1])}
    expected = {"w": np.array([1.0]), "frozen": np.array([1.0])}

    found = compare(LOSSES, moved, LOSSES, expected, expected, ["w"])

    assert found.problems == ("frozen is off by 1.0e-01 where 0.001 is allowed",)


def test_nan_exceeds_any_tolerance() -> None:
    assert "step 2 is off by nan" in check([0.9, float("nan"), 0.7]).problems[0]
    assert check(a_bias=np.array([np.nan, 0.0])).problems


def test_missing_losses_and_tensors_are_errors() -> None:
    with pytest.raises(FarmError, match="2 losses came back instead of 3"):
        check([0.9, 0.8])
    with pytest.raises(FarmError, match=r"lacks trained tensors: a.weight"):
        compare(LOSSES, {"a.bias": START["a.bias"]}, LOSSES, EXPECTED, START, list(EXPECTED))


def test_wrong_shapes_are_an_error() -> None:
    with pytest.raises(FarmError, match=r"came back as \(2,\) instead of \(3,\)"):
        check(a_weight=np.zeros(2))


def test_wrong_number_of_losses_is_an_infinite_error() -> None:
    assert loss_error([0.9], LOSSES) == float("inf")
    assert loss_error(LOSSES, LOSSES) == 0.0
