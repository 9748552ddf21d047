"""The commit that a comparison blames, in real repositories with gaps, noise and merges."""

import os
import random
from pathlib import Path

import pytest

from pockengine.farm.load import BUSY
from pockengine.farm.results.commits import SHORT
from pockengine.farm.results.gate import against
from pockengine.farm.results.regression import Blame
from pockengine.farm.results.results import Record, Results
from pockengine.tests.farm.helpers import record
from pockengine.tests.farm.results.repository import count, git


def merge_of_a_branch(commits: list[str], sources: int) -> tuple[list[str], str]:
    """Merge a branch of `sources` commits into main; return its commits and the merge."""
    folder = Path(os.environ["BUILD_WORKSPACE_DIRECTORY"])
    git(folder, "checkout", "-q", "-b", "side", commits[5])
    branch = []
    for i in range(sources):
        git(folder, "commit", "-q", "--allow-empty", "-m", f"side {i}")
        branch.append(git(folder, "rev-parse", "HEAD")[:SHORT])
    git(folder, "checkout", "-q", "main")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge", "side")
    return branch, git(folder, "rev-parse", "HEAD")[:SHORT]


def timed(commit: str, ours: float, seed: int, **more: object) -> list[Record]:
    """Return our record and that of a 10 ms reference, on a machine of varying speed."""
    source = random.Random(seed)
    weather = [source.uniform(1, 1.2) for _ in range(15)]
    runs = {"pockengine": ours, "torch-eager": 10.0}
    found = []
    for engine, ms in runs.items():
        samples = tuple(ms * now * source.uniform(1, 1.03) for now in weather)
        place = {"engine": engine, "emulated": False, "metric": "step_ms", "unit": "ms", **more}
        spread = {"min": min(samples), "max": max(samples), "n": len(samples)}
        middle = sorted(samples)[7]
        found.append(record(commit=commit, value=middle, samples=samples, **spread, **place))
    return found


def test_first_worse_commit_is_blamed(commits: list[str], url: str) -> None:
    results = Results(url)
    results.append([count(commits[i], value) for i, value in enumerate((9, 9, 9, 9, 10, 10, 10))])

    (one,) = against([count(commits[7], 10)], "main~5", results)

    assert one.baseline is not None
    assert (one.baseline.commit, one.change.value) == (commits[2], "worse")
    assert one.blame == Blame(commits[4], commits[3], 0)
    assert one.why == f"+1 instructions; since {commits[4]}"


def test_unmeasured_commits_are_named_too(commits: list[str], url: str) -> None:
    results = Results(url)
    results.append([count(commits[1], 9), count(commits[2], 9), count(commits[6], 10)])

    (one,) = against([count(f"{commits[7]}-dirty", 10)], "main~6", results)

    assert one.blame == Blame(commits[6], commits[2], 3)
    assert one.why.endswith(
        f"since {commits[6]}, or one of 3 commits not measured after {commits[2]}"
    )


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_a_busy_machine_blame_no_commit(commits: list[str], url: str, seed: int) -> None:
    """Steps are 10 % slower from the fifth commit on; the sixth was measured on a busy machine."""
    results = Results(url)
    for i, ours in enumerate((5, 5, 5, 5, 5.5, 20, 5.5)):
        busy = {"note": BUSY} if ours == 20 else {}
        results.append(timed(commits[i], ours, 10 * seed + i, **busy))

    (one,) = against(timed(commits[7], 5.5, 10 * seed + 8), "main~6", results)

    assert (one.change.value, one.blame) == ("worse", Blame(commits[4], commits[3], 0))


def test_merges_are_blamed_with_their_commits(commits: list[str], url: str) -> None:
    branch, merge = merge_of_a_branch(commits, 3)
    results = Results(url)
    results.append([count(commits[7], 9), count(branch[1], 12)])

    (one,) = against([count(merge, 12)], commits[7], results)

    assert one.blame == Blame(merge, commits[7], 3)


def test_branches_are_not_blamed_for_later_commits_of_main(commits: list[str], url: str) -> None:
    results = Results(url)
    results.append([count(commits[5], 90), count(commits[7], 80)])
    git(Path(os.environ["BUILD_WORKSPACE_DIRECTORY"]), "checkout", "-q", "-b", "side", commits[5])

    (one,) = against([count("now", 90)], "main", results)

    assert one.baseline is not None
    assert (one.baseline.commit, one.change.value) == (commits[5], "same")


def test_partly_measured_commits_do_not_hide_earlier_ones(commits: list[str], url: str) -> None:
    results = Results(url)
    size = {"metric": "arena_bytes", "unit": "bytes"}
    results.append([count(commits[3], 90), record(commit=commits[5], **size)])

    found = against([count("now", 95), record(commit="now", **size)], "main", results)

    assert [(one.baseline and one.baseline.commit, one.change.value) for one in found] == [
        (commits[3], "worse"),
        (commits[5], "same"),
    ]


def test_figures_missing_from_a_partial_run_are_reported(commits: list[str], url: str) -> None:
    results = Results(url)
    size = {"metric": "arena_bytes", "unit": "bytes"}
    results.append([count(commits[5], 90), record(commit=commits[5], **size)])

    found = against([count("now", 90)], "main", results)

    assert [one.change.value for one in found] == ["same", "missing"]
