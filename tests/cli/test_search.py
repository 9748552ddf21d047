"""A search from the command line: amounts with units, a table, the resulting scheme."""

from pathlib import Path
from random import Random

import click
import pytest
from click.testing import CliRunner, Result

from pockengine.cli import search as search_module
from pockengine.cli.units import budget, count, size, time
from pockengine.compiler.optim import Sgd
from pockengine.compiler.sparse import load_scheme
from pockengine.devices import load_device
from pockengine.errors import FinetuneError
from pockengine.finetune.contributions import Item, contributions_of, open_table
from pockengine.finetune.cost import CostModel
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.sensitivity import header_of
from pockengine.finetune.space import items_of
from pockengine.finetune.trial import TrialOutcome
from pockengine.tests.finetune.tiny import tiny_subject, tiny_tuning

SUBJECT = tiny_subject()
GRAPH = SUBJECT.graph
ITEMS = items_of(GRAPH)


@pytest.mark.parametrize(
    ("read", "text", "amount"),
    [
        (size, "250KB", 250_000),
        (size, "250 kib", 256_000),
        (size, "1.5MB", 1_500_000),
        (budget, "400KB", 400_000),
        (budget, "1.5kib", 1536),
        (budget, "170000000", 170_000_000),
        (budget, "0.5", 1),
        (time, "20ms", 20),
        (time, "0.5s", 500),
        (count, "30M", 30_000_000),
        (count, "200000", 200_000),
    ],
)
def test_amounts_have_units(read, text: str, amount: float) -> None:  # type: ignore[no-untyped-def]
    assert read(text) == pytest.approx(amount)


@pytest.mark.parametrize("text", ["250", "KB", "-1KB", "0KB", "1e9KB", "2 PB", "٣KB", "9" * 40])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"KiB|more than 0"):
        size(text)


def outcome(accuracy: float) -> TrialOutcome:
    return TrialOutcome(accuracy, 0.5, 10, 0.1, False)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A contribution table of the first bias set and one share; both gain."""
    path = tmp_path / "table.jsonl"
    header = header_of(SUBJECT, tiny_tuning(), Recipe(0.05, 1), [0])
    with open_table(path, header) as opened:
        opened.add(None, 0, outcome(0.5))
        for place, item in enumerate(ITEMS):
            opened.add(item, 0, outcome(0.5 + 0.02 * (place + 1)))
    return path


def run(tmp_path: Path, table: Path, *options: str) -> Result:
    out = str(tmp_path / "found.toml")
    arguments = ["model", "--contributions", str(table), "--out", out, "--device", "rpi4"]
    return CliRunner().invoke(search_module.search_command, [*arguments, *options])


def test_command_writes_scheme_and_picture(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "open_subject", lambda *_: SUBJECT)
    done = run(tmp_path, table, "--memory", "12KB", "--evaluations", "40", "--control")

    assert done.exit_code == 0, done.output
    scheme = load_scheme(tmp_path / "found.toml")
    costs = CostModel(GRAPH, load_device("rpi4"), Sgd(momentum=0.9))
    assert costs.cost(scheme).memory_bytes <= 12_000
    assert len(scheme.resolve(GRAPH)) > 2
    assert (tmp_path / "found.svg").read_text().startswith("<?xml")
    assert "snapdragon-dsp" in done.output
    assert "40 of 40 schemes evaluated" in done.output


def test_table_of_another_model_is_refused(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "open_subject", lambda *_: tiny_subject(seed=1))
    done = run(tmp_path, table, "--memory", "12KB")

    assert isinstance(done.exception, FinetuneError)
    assert "measured on another model (tiny), or on other weights of it" in str(done.exception)
    assert "must seed them" in str(done.exception)


def test_budget_below_the_head_is_refused(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "open_subject", lambda *_: SUBJECT)
    done = run(tmp_path, table, "--memory", "1KB")

    assert isinstance(done.exception, FinetuneError)
    assert "the head alone, takes" in str(done.exception)
    assert not (tmp_path / "found.toml").exists()


def test_channels_chosen_by_data_are_stored_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.jsonl"
    with open_table(path, header_of(SUBJECT, tiny_tuning(), Recipe(0.05, 1), [0])) as opened:
        opened.add(None, 0, outcome(0.5))
        opened.add(Item("weight", "layers.1.weight", 0.5, "activation"), 0, outcome(0.6))
    monkeypatch.setattr(search_module, "open_subject", lambda *_: SUBJECT)
    monkeypatch.setattr(search_module, "open_tuning", lambda *_, **__: tiny_tuning())
    done = run(tmp_path, path, "--evaluations", "5")
    assert "give the examples by --train" in str(done.exception)

    monkeypatch.setattr(search_module, "presets_within", lambda *_: ())
    done = run(tmp_path, path, "--evaluations", "5", "--train", "data.npz")
    assert done.exit_code == 0, done.output
    channels = load_scheme(tmp_path / "found.toml").resolve(GRAPH)["layers.1.weight"]
    assert channels is not None
    assert len(channels) == 4


def test_validation_needs_data(tmp_path: Path, table: Path) -> None:
    done = run(tmp_path, table, "--memory", "12KB", "--validate", "2")

    assert done.exit_code == 2
    assert "--train" in done.output


def test_command_validates_with_real_trials(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "open_subject", lambda *_: SUBJECT)
    monkeypatch.setattr(search_module, "open_tuning", lambda *_, **__: tiny_tuning())
    options = ["--memory", "20KB", "--evaluations", "20", "--validate", "2", "--train", "data.npz"]
    done = run(tmp_path, table, *options)

    assert done.exit_code == 0, done.output
    assert "by real training" in done.output
    assert "head-only" in done.output  # presets are candidates too
    assert "Full fine-tuning, beyond the budget with " in done.output
    assert "one seed does not tell" in (tmp_path / "found.toml").read_text()
    scheme = load_scheme(tmp_path / "found.toml")
    costs = CostModel(GRAPH, load_device("rpi4"), Sgd(momentum=0.9))
    assert costs.cost(scheme).memory_bytes <= 20_000


def test_full_is_not_trained_if_not_requested_or_if_it_fits(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "open_subject", lambda *_: SUBJECT)
    monkeypatch.setattr(search_module, "open_tuning", lambda *_, **__: tiny_tuning())
    options = ["--evaluations", "20", "--validate", "2", "--train", "data.npz"]

    for more in (["--memory", "20KB", "--no-full"], ["--memory", "20MB"]):
        done = run(tmp_path, table, *options, *more)
        assert done.exit_code == 0, done.output
        assert "Full fine-tuning" not in done.output


def test_insignificant_gains_are_reported_and_the_presets_compete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, path = Random(0), tmp_path / "table.jsonl"
    with open_table(path, header_of(SUBJECT, tiny_tuning(), Recipe(0.05, 1), [0, 1])) as opened:
        for item in (None, *ITEMS):
            for seed in (0, 1):
                chance = random.gauss(0.5, 0.05)
                opened.add(item, seed, TrialOutcome(chance, 1 - chance, 10, 0.1, False))
    monkeypatch.setattr(search_module, "open_subject", lambda *_: SUBJECT)
    monkeypatch.setattr(search_module, "open_tuning", lambda *_, **__: tiny_tuning())
    done = run(tmp_path, path, "--memory", "40KB")
    assert isinstance(done.exception, FinetuneError)
    assert "gains are chance" in str(done.exception)

    done = run(tmp_path, path, "--memory", "40KB", "--train", "data.npz")
    assert done.exit_code == 0, done.output
    assert "won by real training" in done.output
    assert "searched-" not in done.output


def test_gains_equal_the_table(table: Path) -> None:
    _, trials = search_module.read_contributions(table, SUBJECT)
    found = contributions_of(trials)

    assert found.baseline == 0.5
    assert found.gains[ITEMS[0]].mean == pytest.approx(0.02)
