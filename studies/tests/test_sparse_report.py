"""The page shows what is in the journal, and nothing else."""

import json
from pathlib import Path

import pytest

from pockengine.errors import FinetuneError
from pockengine.farm.results.results import Record
from pockengine.studies.sparse.agreement import agreement_section, agreements_of
from pockengine.studies.sparse.figures import SchemeRow, against, gather
from pockengine.studies.sparse.journal import Journal
from pockengine.studies.sparse.plan import BLIND, PAIRS, find_pairs
from pockengine.studies.sparse.plots import draw_searches
from pockengine.studies.sparse.predictions import (
    DRAWN,
    RANDOM,
    SEARCH,
    Prediction,
    Search,
    compared,
    pooled,
    predictions_of,
)
from pockengine.studies.sparse.predictors import MEANINGS
from pockengine.studies.sparse.report import write_report

PAIR = str(PAIRS[0])


def filled(path: Path) -> Journal:
    """A pair whose searched scheme is a point below full at a fifth of its memory."""
    journal = Journal(path)
    facts = {"train": 8, "validation": 4, "test": 4, "classes": 2, "majority": 0.5, "batch": 2}
    journal.put({"kind": "pair", "pair": PAIR}, {**facts, "commit": "abc"})
    for scheme, accuracy, extra in (("full", 0.8, 900), ("searched", 0.79, 150)):
        where = {"pair": PAIR, "scheme": scheme, "rules": scheme}
        for seed in (0, 1):
            key: dict[str, object] = {**where, "kind": "trial", "purpose": "final", "seed": seed}
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


def test_times_of_a_busy_machine_are_marked_and_compare_nothing(tmp_path: Path) -> None:
    journal = filled(tmp_path / "journal.jsonl")
    for median, ratio, cell in ((2.1, 2.0, "| 2.1 (2.0 to 5.0) |"), (3.1, None, "| 3.1 (2.0 to")):
        for scheme, low in (("full", 4.1), ("searched", 2.0)):
            key = {"kind": "step", "pair": PAIR, "scheme": scheme, "rules": scheme}
            time = median if scheme == "searched" else 4.2
            journal.put(key, {"median": time, "low": low, "high": 5.0, "n": 3, "machine": "a"})
        (compared,) = against(gather(journal), "full")
        assert compared.step == (None if ratio is None else pytest.approx(ratio))
        assert cell in write_report(journal, tmp_path).read_text()
    assert "3.1 (2.0 to 5.0)* |" in write_report(journal, tmp_path).read_text()
    lines = (tmp_path / "sparse-records.jsonl").read_text().splitlines()
    steps = [one for one in map(Record.from_json, lines) if one.metric == "step_ms"]
    assert [(one.scheme, one.busy) for one in steps] == [("full", False), ("searched", True)]


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


def with_race(journal: Journal) -> Journal:
    """A race of a preset and two searched schemes, and the preset's final runs."""
    schemes = ["searched-1", "full", "searched-2"]
    journal.put(
        {"kind": "race", "pair": PAIR, "rules": ["searched", "full"]},
        {
            "schemes": schemes,
            "predicted": [0.3, None, 0.1],
            "accuracies": [[0.8, 0.9], [0.7, 0.8], [0.6, 0.6]],
            "measure": "loss",
            "reliabilities": {"accuracy": 0.125, "loss": 0.875},
        },
    )
    return journal


def test_page_says_how_far_the_judge_and_the_test_part_agree(tmp_path: Path) -> None:
    journal = with_race(Journal(tmp_path / "journal.jsonl"))
    journal.put({"kind": "pair", "pair": PAIR}, {"commit": "abc"})
    runs = {
        ("a", 0.01): (0.5, 0.6),
        ("a", 0.02): (0.8, None),  # its best rate
        ("b", 0.01): (0.7, 0.8),
        ("c", 0.01): (0.6, 0.7),
        ("full", 0.01): (0.9, 0.1),
        ("d", 0.01): (0.1, None),  # not tested
    }
    for (scheme, rate), accuracies in runs.items():
        for purpose, accuracy in zip(("choice", "final"), accuracies, strict=True):
            key = {"kind": "trial", "pair": PAIR, "purpose": purpose, "scheme": scheme}
            if accuracy is not None:
                journal.put({**key, "rules": scheme, "rate": rate}, {"accuracy": accuracy})
    (found,) = agreements_of(journal)
    assert (found.judged, found.tested) == ((0.8, 0.7, 0.6), (0.6, 0.8, 0.7))
    assert found.rho == pytest.approx(-0.5)
    section = agreement_section([found])
    assert f"is -0.50, the mean of 1 pairs ({PAIR} -0.50 of 3 schemes)" in section
    assert agreement_section([]) == ""


def test_page_shows_races_and_the_searched_scheme_beside_the_best_preset(tmp_path: Path) -> None:
    page = write_report(with_race(filled(tmp_path / "journal.jsonl")), tmp_path).read_text()
    row = f"| {PAIR} | 0.12 | 0.88 | loss | 3 | searched-1 | 85.0 | full | 75.0 |"
    assert row in page
    assert f"| {PAIR} | full | -1.0 | 0.0 |" in page
    assert f"more than twice the noise: {PAIR}." in page
    assert f"Further below: {PAIR} (-1.0)." in page
    assert "not tested since races" not in page


def test_predictions_are_ranked_within_their_pair(tmp_path: Path) -> None:
    journal = with_race(Journal(tmp_path / "journal.jsonl"))
    journal.put({"kind": "pair", "pair": PAIR}, {})
    (found,) = predictions_of(journal)
    assert found.predicted == (0.3, 0.1)
    assert found.validated == pytest.approx((0.85, 0.6))
    one = Prediction("a", (1.0, 2.0, 3.0), (10.0, 20.0, 30.0))
    other = Prediction("b", (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (6.0, 5.0, 4.0, 3.0, 2.0, 1.0))
    rho, count = pooled([one, other])
    assert rho == pytest.approx((3 - 6) / 9)
    assert count == 9
    assert pooled([found]) == (None, 0)


def test_searches_are_compared_within_the_same_gains_alone() -> None:
    def searches(gains: str, *samplers: str) -> list[Search]:
        return [Search(PAIR, gains, "accuracy", sampler, 0, 100, (0.1,)) for sampler in samplers]

    complete = searches("a", SEARCH, DRAWN, RANDOM)
    assert compared([*complete, *searches("b", SEARCH)]) == [complete]


def test_searches_of_which_no_item_gained_are_drawn(tmp_path: Path) -> None:
    draw_searches([[Search(PAIR, "a", "loss", SEARCH, 0, 100, ())]], tmp_path / "none.png")
    assert (tmp_path / "none.png").stat().st_size


def test_blind_pairs_are_run_by_their_whole_names_alone() -> None:
    assert not set(BLIND) & set(find_pairs([]))
    assert not set(BLIND) & set(find_pairs(["cifar10", "minilm-l6"]))
    assert find_pairs([str(BLIND[0])]) == BLIND[:1]


def test_page_ranks_what_foretells_a_scheme(tmp_path: Path) -> None:
    rows = [
        {"pair": PAIR, "scheme": "drawn", "held": 0.1 * place, "predictors": predictors}
        for place in range(4)
        for predictors in [{name: place * (-1.0) ** (name == "gradient") for name in MEANINGS}]
    ]
    rows.append({"pair": PAIR, "scheme": "full", "held": 0.9, "predictors": {"gradient": 5.0}})
    path = tmp_path / "sparse-predictors.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    page = write_report(Journal(tmp_path / "journal.jsonl"), tmp_path).read_text()
    assert f"| predictor | {PAIR} (4 schemes) |" in page
    assert f"| gradient: {MEANINGS['gradient']} | -1.00 |" in page
    assert f"| one epoch: {MEANINGS['one epoch']} | +1.00 |" in page

    path.write_text("{}\n")
    with pytest.raises(FinetuneError, match="line 1 is no record"):
        write_report(Journal(tmp_path / "journal.jsonl"), tmp_path)


def test_rows_and_facts_are_those_of_the_test_part_that_judged_last(tmp_path: Path) -> None:
    journal = filled(tmp_path / "journal.jsonl")
    for digest, size, scheme in (("old", 100, "full"), ("new", 400, "full"), ("none", 900, "")):
        journal.put(
            {"kind": "pair", "pair": PAIR, "sizes": size}, {"test": size, "test_digest": digest}
        )
        if scheme:
            key: dict[str, object] = {"kind": "trial", "purpose": "final", "pair": PAIR}
            key |= {"scheme": scheme}
            key |= {"rules": scheme, "rate": 0.01, "epochs": 1, "train": "t", "judged_by": digest}
            journal.put(key, {"accuracy": 0.6, "diverged": False})
    (found,) = gather(journal)
    assert found.facts["test"] == 400
    assert [row.scheme for row in found.rows] == ["full"]
    assert found.rows[0].accuracies == (0.6,)
