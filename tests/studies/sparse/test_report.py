"""The page says what the journal has, and nothing else."""

from pathlib import Path

import pytest

from pockengine.errors import FinetuneError
from pockengine.studies.sparse.figures import SchemeRow, against, gather
from pockengine.studies.sparse.journal import Journal
from pockengine.studies.sparse.plan import PAIRS, find_pairs
from pockengine.studies.sparse.report import write_report

PAIR = str(PAIRS[0])


def filled(path: Path) -> Journal:
    """A pair whose searched scheme is a point behind full at a fifth of its memory."""
    journal = Journal(path)
    facts = {"train": 8, "validation": 4, "test": 4, "classes": 2, "majority": 0.5, "batch": 2}
    journal.put({"kind": "pair", "pair": PAIR}, {**facts, "commit": "abc"})
    for scheme, accuracy, extra in (("full", 0.8, 900), ("searched", 0.79, 150)):
        where = {"pair": PAIR, "scheme": scheme, "rules": scheme}
        for seed in (0, 1):
            key = {**where, "kind": "trial", "purpose": "final", "seed": seed}
            key |= {"rate": 0.01, "epochs": 1, "train": "t"}
            result = {"accuracy": accuracy + 0.01 * seed, "diverged": False}
            journal.put(key, result)
        cost = {"extra_bytes": extra, "state_bytes": 100 if scheme == "full" else 50}
        journal.put({**where, "kind": "cost"}, {**cost, "trained": 3, "arena_bytes": 5000})
    return journal


def test_searched_is_compared_with_full(tmp_path: Path) -> None:
    (compared,) = against(gather(filled(tmp_path / "journal.jsonl")), "full")
    assert compared.points == pytest.approx(-1)
    assert compared.memory == pytest.approx(5)
    assert compared.whole == pytest.approx(5100 / 5050)
    assert compared.arenas == (150, 900)
    assert compared.step is None


def test_page_names_what_is_missing_and_misses_the_goal(tmp_path: Path) -> None:
    page = write_report(filled(tmp_path / "journal.jsonl"), tmp_path).read_text()
    assert "| searched | 79.5 ± 0.7 | 2 | 0.01 |" in page
    assert "-1.00 points from full on average, at 5.0x less extra memory" in page
    assert "is missed" in page
    assert f"- {PAIRS[1]}: not run" in page
    assert f"- {PAIR}: instructions not counted" in page
    assert f"- {PAIR}: a step's time not measured" in page
    assert "- mcunet-5fps: no control in PyTorch" in page
    assert "## The control in PyTorch" not in page


def test_mean_of_equal_accuracies_is_theirs() -> None:
    row = SchemeRow("full", (0.683,) * 3, 1e-3, 0, 0, 0, 0, 0, None, None)
    assert row.mean == 0.683


def test_page_of_an_empty_journal_claims_nothing(tmp_path: Path) -> None:
    page = write_report(Journal(tmp_path / "journal.jsonl"), tmp_path).read_text()
    assert "No pair has both" in page
    assert all(f"- {pair}: not run" in page for pair in PAIRS)


def test_unknown_pair_is_named() -> None:
    with pytest.raises(FinetuneError, match="unknown nothing; pairs are mcunet-5fps/cifar10"):
        find_pairs(["nothing"])
