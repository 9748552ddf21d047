"""All of ONNX's training-related cases: none fails, and unsupported ones are listed."""

import pytest

from pockengine.tests.conformance.onnx_cases import RANDOM_MASK, training_cases
from pockengine.tests.conformance.onnx_nodes import (
    FAILED,
    PASSED,
    UNSUPPORTED,
    CaseResult,
    count,
    records_of,
    run_cases,
    status_of,
)

INCOMPARABLE = [
    "test_training_dropout",
    "test_training_dropout_default",
    "test_training_dropout_default_mask",
    "test_training_dropout_mask",
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[CaseResult]:
    return run_cases(training_cases(), tmp_path_factory.mktemp("onnx"), threads=2)


def test_no_case_fails(outcomes: list[CaseResult]) -> None:
    assert len(outcomes) == 121
    assert not [(o.case.name, o.reason) for o in outcomes if o.status == FAILED]


def test_only_foreign_random_numbers_are_unsupported(outcomes: list[CaseResult]) -> None:
    unsupported = {o.case.name: o.reason for o in outcomes if o.status == UNSUPPORTED}

    assert unsupported == dict.fromkeys(INCOMPARABLE, RANDOM_MASK)


def test_records_count_operators_and_cases(outcomes: list[CaseResult]) -> None:
    values = {record.metric: record.value for record in records_of(outcomes, threads=2)}

    assert values == {
        "ops_passed": len(count(outcomes)),
        "ops_failed": 0,
        "ops_unsupported": 0,
        "samples_passed": 117,
    }


@pytest.mark.parametrize(
    ("passed", "failed", "unsupported", "status"),
    [(3, 1, 0, FAILED), (1, 0, 5, PASSED), (0, 0, 2, UNSUPPORTED)],
)
def test_operator_is_judged_by_its_cases(
    passed: int, failed: int, unsupported: int, status: str
) -> None:
    assert status_of({PASSED: passed, FAILED: failed, UNSUPPORTED: unsupported}) == status
