"""The commit-msg hook; pre-commit installs it."""

from pathlib import Path

import pytest

from pockengine.tests.repo import commit_title
from pockengine.tests.repo.tree import read


@pytest.mark.parametrize(
    "title",
    [
        "CSE: keep intentional duplicates",
        "docs: update runner size",
        "Share kernel code between ISAs",
        "C backend: pass scratch by thread",
        "Address one arena",
        "JAX: take a general init of reduce_window",
        'Revert "Tell of what changed"',
    ],
)
def test_imperatives_pass(title: str) -> None:
    assert commit_title.fault(title) is None


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Let equal nodes stay that are there on purpose", '"let"'),
        ("Say how large the runner is now", '"say"'),
        ("Docs: tell of what changed", '"tell"'),
        ("Fixed the planner", '"fixed"'),
        ("Planner: fixes overlap of scratch", '"fixes"'),
        ("Adding kernels", '"adding"'),
        ("Planner: the size of gaps", '"the"'),
        ("Share what kernels of two ISAs repeat", "name the thing"),
        ("Fix the planner.", "period"),
        ("Fix " + "x" * 57, "61 characters"),
    ],
)
def test_other_titles_are_refused(title: str, words: str) -> None:
    assert words in str(commit_title.fault(title))


def test_hook_reads_the_title_behind_comments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("# a comment of Git\nFix the planner\n\nIt had gaps, and says so.\n")
    assert commit_title.main(str(message)) == 0
    message.write_text("\n# nothing yet\n")
    assert commit_title.main(str(message)) == 1
    assert "empty" in capsys.readouterr().err


def test_pre_commit_installs_the_hook() -> None:
    config = read(Path(".pre-commit-config.yaml"))
    assert "default_install_hook_types: [pre-commit, commit-msg]" in config
    assert "entry: python tests/repo/commit_title.py\n        stages: [commit-msg]" in config
