"""Regressions: any increase of a count or size, and times beyond the noise."""

import random
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pockengine.farm.results.noise import find_moves, ratio_interval
from pockengine.farm.results.regression import Change, Comparison, compare_records, worse
from pockengine.farm.results.regression_report import annotations, junit, markdown
from pockengine.farm.results.results import Record
from pockengine.tests.farm.helpers import record


def count(value: float, **more: object) -> Record:
    return record(value=value, min=value, max=value, **more)


def timed(samples: list[float], engine: str = "pockengine", **more: object) -> Record:
    middle = sorted(samples)[len(samples) // 2]
    return record(
        metric="step_ms",
        unit="ms",
        value=middle,
        min=min(samples),
        max=max(samples),
        n=len(samples),
        samples=tuple(samples),
        engine=engine,
        emulated=False,
        **more,
    )


def run_of(ours: float, machine: float, seed: int, noise: float = 0.03) -> list[Record]:
    """Return an interleaved run with a reference, on a machine `machine` times slower."""
    source = random.Random(seed)
    weather = [machine * source.uniform(1, 1 + 5 * noise) for _ in range(25)]  # shared by both
    mine = [ours * now * source.uniform(1, 1 + noise) for now in weather]
    theirs = [10 * now * source.uniform(1, 1 + noise) for now in weather]
    return [timed(mine), timed(theirs, "torch-eager")]


def change(current: list[Record], baseline: list[Record]) -> Change:
    (one,) = compare_records(current, baseline)
    return one.change


@pytest.mark.parametrize(
    ("now", "expected"), [(100, Change.SAME), (101, Change.WORSE), (99, Change.BETTER)]
)
@pytest.mark.parametrize("metric", ["guest_instructions", "arena_bytes", "binary_bytes"])
def test_counts_and_sizes_are_exact(metric: str, now: int, expected: Change) -> None:
    assert change([count(now, metric=metric)], [count(100, metric=metric)]) is expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [(102.6, Change.WORSE), (100.5, Change.SAME), (97.0, Change.BETTER)],
)
def test_resident_memory_may_grow_by_one_percent_and_some_pages(
    now: float, expected: Change
) -> None:
    resident = {"metric": "peak_rss_bytes", "unit": "B"}
    large, small = 1 << 20, 1 << 10  # 100 MiB, and 100 KiB, where single pages exceed 1 %
    assert change([count(now * large, **resident)], [count(100 * large, **resident)]) is expected
    pages = [count(100 * small, **resident)]
    assert change([count(now * small, **resident)], pages) is Change.SAME


def test_junit_has_the_time_of_the_run_and_of_each_figure() -> None:
    times = ("2026-01-01T10:00:00+00:00", "2026-01-01T10:01:30+00:00")
    metrics = ("arena_bytes", "binary_bytes", "guest_instructions")
    records = [
        count(1, metric=metric, time=time)
        for metric, time in zip(metrics, (times[0], times[0], times[1]), strict=True)
    ]
    root = ElementTree.fromstring(junit(compare_records(records, records), "main"))
    assert (root.get("timestamp"), root.get("time")) == (times[0], "90.000")
    assert [case.get("time") for case in root] == ["0.000", "0.000", "90.000"]


def test_equal_code_on_a_slower_machine_is_equal() -> None:
    for seed in range(20):
        assert change(run_of(5, 2.0, seed), run_of(5, 1.0, seed + 100)) is Change.SAME


def test_slower_code_is_found_on_any_machine() -> None:
    found = [change(run_of(5.5, 0.7, seed), run_of(5, 1.0, seed + 100)) for seed in range(20)]

    assert found == [Change.WORSE] * 20


def test_faster_code_is_found() -> None:
    assert change(run_of(4.5, 1.3, 1), run_of(5, 1.0, 2)) is Change.BETTER


def test_without_a_reference_only_a_large_change_counts() -> None:
    before = [timed([10.0, 10.1, 10.2, 10.1, 10.0] * 3)]

    assert change([timed([10.6, 10.7, 10.5, 10.6, 10.6] * 3)], before) is Change.SAME
    assert change([timed([12.0, 12.1, 12.2, 12.1, 12.0] * 3)], before) is Change.WORSE


def test_without_samples_ranges_must_not_overlap() -> None:
    def plain(low: float, value: float, high: float) -> Record:
        return record(metric="step_ms", unit="ms", min=low, value=value, max=high)

    assert change([plain(9, 12, 15)], [plain(8, 10, 11)]) is Change.SAME
    assert change([plain(12, 13, 15)], [plain(8, 10, 11)]) is Change.WORSE
    assert change([plain(5, 6, 7)], [plain(8, 10, 11)]) is Change.BETTER


@pytest.mark.parametrize(
    "other",
    [
        {"device": "host"},
        {"model": "other"},
        {"scheme": "sparse"},
        {"batch": 8},
        {"threads": 2},
        {"emulated": False},
        {"engine": "torch-eager"},
    ],
)
def test_only_comparable_records_are_compared(other: dict[str, object]) -> None:
    (first, *_) = compare_records([count(100)], [count(50, **other)])

    assert first.change is Change.NEW


def test_counts_but_not_times_are_compared_across_boards() -> None:
    times = compare_records([timed([1.0])], [timed([1.0], board="another")])
    counts = compare_records([count(5, board="a")], [count(5, board="b")])

    assert times[0].change is Change.NEW
    assert counts[0].change is Change.SAME


def test_missing_or_failed_figures_stop_a_change() -> None:
    baseline = [count(5), count(7, metric="arena_bytes")]

    found = compare_records([count(5)], baseline)
    failed = compare_records([count(5, ok=False, note="it throttled")], baseline[:1])

    assert [one.change for one in found] == [Change.SAME, Change.MISSING]
    assert [one.why for one in worse([*found, *failed])] == [
        "it was not measured now",
        "it throttled",
    ]


def test_failed_baselines_are_ignored() -> None:
    assert change([count(5)], [count(4), count(9, ok=False)]) is Change.WORSE


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=30), st.floats(0.1, 10.0))
def test_intervals_contain_the_ratio_and_scale(values: list[float], factor: float) -> None:
    interval = ratio_interval([value * factor for value in values], values)

    assert interval.low <= interval.ratio <= interval.high
    assert interval.ratio == pytest.approx(factor)


def test_moves_are_located() -> None:
    source = random.Random(0)
    levels = [10.0] * 12 + [11.0] * 10 + [9.0] * 11

    series = [level * source.uniform(0.99, 1.01) for level in levels]

    assert find_moves(series, 0.02) == [12, 22]


def test_noise_alone_does_not_move() -> None:
    for seed in range(10):
        source = random.Random(seed)
        assert find_moves([10 * source.uniform(0.9, 1.1) for _ in range(30)], 0.02) == []


HOSTILE = "a|b`c\n]]>&<x>%::error\x01\x1b,:"  # records cannot contain NUL


def hostile() -> list[Comparison]:
    names = {"scheme": HOSTILE, "model": HOSTILE}
    return compare_records([count(101, **names)], [count(100, **names)])


def test_junit_names_failures_and_supports_any_text() -> None:
    figures = [count(5), count(8, metric="arena_bytes"), count(1, metric="binary_bytes")]
    found = compare_records(figures, [count(5), count(7, metric="arena_bytes")])

    root = ElementTree.fromstring(junit([*found, *hostile()], "main"))

    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("4", "2", "1")
    (failure, _) = root.findall("testcase/failure")
    assert failure.get("message") == (
        "worse: 7 instructions before, 8 instructions now; +1 instructions"
    )


def test_annotations_are_one_line_each() -> None:
    lines = annotations(hostile())

    assert len(lines) == 1
    assert lines[0].startswith("::error title=guest_instructions worse::rpi4 a|b`c%0A]]>")
    assert "\n" not in lines[0]


def test_markdown_text_stays_in_its_cell() -> None:
    text = markdown([*hostile(), *compare_records([count(5)], [count(5)])], "main")

    (row,) = [line for line in text.splitlines() if "worse" in line or "🔴" in line]
    assert row.replace("\\|", "").count("|") == 6
    assert "1 figures stop this change" in text
    assert "1 figures are the same." in text
