"""The table on disk: intact after any kill, and refused if its settings differ."""

import json
import math
from pathlib import Path

import pytest

from pockengine.errors import FinetuneError
from pockengine.finetune.contributions import (
    LOSS,
    Contributions,
    Gain,
    Item,
    contributions_of,
    judge_of,
    open_table,
    read_table,
)
from pockengine.finetune.judges import ACCURACY, HELD_OUT
from pockengine.finetune.trial import TrialOutcome

HEADER = {"subject": "tiny", "seeds": [0, 1]}
WEIGHT = Item("weight", "fc.weight", 0.25, "magnitude")
BIASES = Item("biases", "last 2 blocks")


def outcome(accuracy: float) -> TrialOutcome:
    return TrialOutcome(accuracy, 0.5, 10, 0.125, diverged=False)


def write(path: Path) -> None:
    with open_table(path, HEADER) as table:
        for seed, base in enumerate((0.5, 0.6)):
            table.add(None, seed, outcome(base))
            table.add(WEIGHT, seed, outcome(base + 0.1 * (seed + 1)))


def test_added_trials_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "table.jsonl"
    write(path)
    with open_table(path, HEADER) as table:
        assert len(table.trials) == 4
        table.add(BIASES, 0, TrialOutcome(0.25, math.nan, 3, 0.5, diverged=True))
    header, trials = read_table(path)

    assert header == {"schema": 1, **HEADER}
    assert trials[WEIGHT, 1] == outcome(0.6 + 0.2)
    assert trials[BIASES, 0].diverged
    assert math.isnan(trials[BIASES, 0].loss)


def test_gains_are_over_the_baseline_of_the_same_seed(tmp_path: Path) -> None:
    write(tmp_path / "table.jsonl")
    found = contributions_of(read_table(tmp_path / "table.jsonl")[1])

    assert found.baseline == pytest.approx(0.55)
    gain = found.gains[WEIGHT]
    assert (gain.mean, gain.spread, gain.n) == pytest.approx((0.15, 0.1 / math.sqrt(2), 2))
    one = contributions_of({(None, 0): outcome(0.5), (BIASES, 0): outcome(0.4)})
    assert one == Contributions(0.5, {BIASES: Gain(pytest.approx(-0.1), 0.0, 1)})


def test_torn_lines_are_dropped_and_others_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    write(path)
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with open_table(path, HEADER) as table:
            assert len(table.trials) == max(0, data[:size].count(b"\n") - 1)
        assert path.read_bytes().endswith(b"\n")
        assert read_table(path)[0]["subject"] == "tiny"


def test_tables_of_other_measurements_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "table.jsonl")
    other = {"subject": "tiny", "seeds": [0, 1, 2], "rate": 0.1}

    with (
        pytest.raises(FinetuneError, match=r"seeds: \[0, 1\] there, \[0, 1, 2\] now; rate: None"),
        open_table(tmp_path / "table.jsonl", other),
    ):
        pass


def test_one_process_adds_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    with (
        open_table(path, HEADER),
        pytest.raises(FinetuneError, match="another process"),
        open_table(path, HEADER),
    ):
        pass
    with open_table(path, HEADER) as table:
        table.add(None, 0, outcome(0.5))
        with pytest.raises(FinetuneError, match="the baseline with seed 0 already"):
            table.add(None, 0, outcome(0.5))


ROW = {"item": None, "seed": 0, "accuracy": 0.5, "loss": 1, "steps": 1, "seconds": 1}
WRONG = [
    "{",
    "[]",
    "[" * 100_000,
    json.dumps(ROW),
    json.dumps({**ROW, "diverged": 1}),
    json.dumps({**ROW, "diverged": False, "accuracy": 2}),
    json.dumps({**ROW, "diverged": False, "loss": "x"}),
    json.dumps({**ROW, "diverged": False, "steps": float("inf")}),
    json.dumps({**ROW, "diverged": False, "seed": [1]}),
    json.dumps({**ROW, "diverged": False, "item": {"kind": "weight", "name": ["x"]}}),
    json.dumps({**ROW, "diverged": False, "item": {"kind": [], "name": "x"}}),
    json.dumps({**ROW, "diverged": False, "item": {"kind": "weight", "name": "x", "share": "1"}}),
    json.dumps({**ROW, "diverged": False, "item": {"kind": "weight"}}),
    json.dumps({**ROW, "diverged": False, "item": {"kind": "rubbish", "name": "x"}}),
    json.dumps({**ROW, "diverged": False, "item": {"kind": "weight", "name": "x", "share": 0}}),
]


@pytest.mark.parametrize("line", WRONG)
def test_errors_name_damaged_lines(tmp_path: Path, line: str) -> None:
    path = tmp_path / "table.jsonl"
    path.write_text(json.dumps({"schema": 1, **HEADER}) + f"\n{line}\n")

    with pytest.raises(FinetuneError, match="line 2 is no"):
        read_table(path)


@pytest.mark.parametrize("text", ["", "\n", '{"schema": 2}\n', "\x00\n", "{}"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.jsonl"
    path.write_text(text)

    with pytest.raises(FinetuneError, match=r"table\.jsonl"):
        read_table(path)
    with pytest.raises(FinetuneError, match="cannot be read"):
        read_table(tmp_path / "absent.jsonl")


def test_lower_loss_is_a_gain(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    with open_table(path, {**HEADER, "judge": HELD_OUT.name}) as table:
        for seed in (0, 1):
            table.add(None, seed, TrialOutcome(-3.0, 3.5, 9, 0.1, False, (-2.5, -3.5)))
            table.add(WEIGHT, seed, TrialOutcome(-2.0, 2.5, 9, 0.1, False, (-1.5, -2.5)))
            table.add(BIASES, seed, TrialOutcome(-math.inf, math.nan, 1, 0.1, True))
    header, trials = read_table(path)
    found = contributions_of(trials, HELD_OUT.name)

    assert judge_of(header) is HELD_OUT
    assert json.loads(path.read_text().splitlines()[1])["held_out_loss"] == 3
    assert trials[WEIGHT, 1].parts == (-1.5, -2.5)
    assert (found.baseline, found.measure) == (-3.0, "held-out loss")
    assert found.gains[WEIGHT].mean == pytest.approx(1.0)
    assert found.gains[BIASES].mean == -3.0  # a diverged trial: twice the baseline's loss


def test_diverging_baselines_are_reported() -> None:
    lost = TrialOutcome(-math.inf, math.nan, 1, 0.1, True)

    with pytest.raises(FinetuneError, match="the head alone, diverged with seed 4; measure at a"):
        contributions_of({(None, 4): lost, (WEIGHT, 4): lost}, HELD_OUT.name)
    lost = TrialOutcome(0.1, math.nan, 1, 0.1, diverged=True)
    for measure in (ACCURACY.name, LOSS):
        with pytest.raises(FinetuneError, match="or look for NaN"):
            contributions_of({(None, 4): lost, (WEIGHT, 4): lost}, measure)
