"""A fixed part of OpInfo, run for every change: samples of every core op."""

import warnings

import pytest
from rich.console import Console

from pockengine.tests.conformance import opinfo_report as report
from pockengine.tests.conformance.opinfo import run_ops
from pockengine.tests.conformance.opinfo_run import FAILED, PASSED, UNSUPPORTED, Result
from pockengine.tests.conformance.opinfo_samples import CORE, differentiable_ops

SAMPLES = 6
"""Samples per op, evenly spread."""

UNSUPPORTED_USES = ("it draws random numbers, which differ from PyTorch's",)
"""The only accepted reason for an unsupported sample of a core op: attention with dropout."""


@pytest.fixture(scope="module")
def results() -> list[Result]:
    warnings.simplefilter("ignore")
    known = differentiable_ops()
    return run_ops({name: known[name] for name in CORE}, SAMPLES, Console(stderr=True))


def test_core_samples_match_eager_pytorch(results: list[Result]) -> None:
    wrong = [result for result in results if result.status == FAILED]
    assert not wrong, "\n".join(f"{r.op} {r.index}: {r.reason}" for r in wrong)


def test_every_core_op_passes(results: list[Result]) -> None:
    assert {tally.op for tally in report.tallies(results) if tally.status == PASSED} == set(CORE)


def test_only_random_samples_are_unsupported(results: list[Result]) -> None:
    others = [
        f"{result.op} {result.index}: {result.reason}"
        for result in results
        if result.status == UNSUPPORTED
        and not any(text in result.reason for text in UNSUPPORTED_USES)
    ]
    assert not others, "\n".join(others)


def test_summary_counts_ops_and_samples() -> None:
    outcomes = [
        Result("add", 0, PASSED),
        Result("add", 1, UNSUPPORTED, "example input 0 of M has the empty shape (0,)"),
        Result("mul", 0, PASSED),
        Result("mul", 1, FAILED, "loss 1, not 2"),
        Result(
            "fft", 0, UNSUPPORTED, "M cannot be imported: 1\n  1 x aten.fft in the top level: no"
        ),
    ]
    tallies = report.tallies(outcomes)
    assert report.summary(tallies) == (
        "3 ops: 1 passed, 1 failed, 1 unsupported. 5 samples: 2 passed, 1 failed, 2 unsupported."
    )
    figures = {record.metric: record.value for record in report.records(tallies, "some")}
    assert figures == {
        "ops_passed": 1,
        "ops_failed": 1,
        "ops_unsupported": 1,
        "samples_passed": 2,
    }
    assert not any(record.ok for record in report.records(tallies, "some"))
    assert tallies[1].reasons == {"aten.fft: no": 1}


def test_empty_samples_do_not_make_an_op_pass() -> None:
    empty = Result("op", 0, PASSED, empty=True)
    assert report.Tally("op", [empty]).status == UNSUPPORTED
    assert report.Tally("op", [empty, Result("op", 1, PASSED)]).status == PASSED
