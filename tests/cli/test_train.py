"""`pockengine train`, `evaluate` and `predict` from files: as `fit` does, and resumable."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

from pockengine.backends.training.history import LEGEND
from pockengine.cli.main import cli
from pockengine.errors import FinetuneError
from pockengine.tests.finetune.tiny import digits

MODEL = f"{__name__}:perceptron"


def perceptron() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    return net, (torch.randn(20, 64),)


@pytest.fixture(name="data", scope="module")
def rows_of_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write rows to a file, and the artifact `net` beside it."""
    folder = tmp_path_factory.mktemp("digits")
    examples = digits(190)
    inputs = examples.inputs["x"].reshape(190, 64)
    save_file({"input": inputs, "target": examples.labels}, folder / "rows.safetensors")
    np.save(folder / "inputs.npy", inputs)
    np.savez(folder / "labels.npz", target=examples.labels)
    net = str(folder / "net")
    made = CliRunner().invoke(cli, ["compile", MODEL, "--optimizer", "adam", "--out", net])
    assert made.exit_code == 0, made.output
    return folder


def call(name: str, data: Path, *options: str, rows: str = "rows.safetensors") -> Result:
    places = [str(data / "net"), "--data", str(data / rows)]
    return CliRunner().invoke(cli, [name, *places, *options])


def test_train_evaluate_and_predict(data: Path, tmp_path: Path) -> None:
    saved, out = str(tmp_path / "run"), tmp_path / "tuned" / "weights"
    validation = ("--validation", str(data / "rows.safetensors"), "--metric", "accuracy")
    options = ("--epochs", "12", "--lr", "0.01", "--checkpoint", saved, "--out", str(out))

    trained = call("train", data, *options, *validation, "--json")

    assert trained.exit_code == 0, trained.output
    figures = json.loads(trained.stdout)["epochs"][-1]["figures"]
    assert figures["validation_accuracy"] > 0.8
    assert load_file(out).keys() == perceptron()[0].state_dict().keys()
    evaluated = call("evaluate", data, "--checkpoint", saved, "--metric", "accuracy", "--json")
    scores = json.loads(evaluated.stdout)
    assert scores["metrics"]["accuracy"] == pytest.approx(figures["validation_accuracy"])
    assert (scores["rows"], scores["of"]) == (180, 190)
    fresh = call("evaluate", data, "--metric", "accuracy").stdout
    assert "accuracy" in fresh
    assert float(fresh.split("accuracy ")[1].split()[0]) < 0.4
    assert call("predict", data, "--checkpoint", saved, "--out", str(tmp_path / "o")).exit_code == 0
    (logits,) = load_file(tmp_path / "o").values()
    labels = load_file(data / "rows.safetensors")["target"]
    assert np.mean(logits.argmax(1) == labels) == pytest.approx(scores["metrics"]["accuracy"])


@pytest.mark.parametrize("width", [80, 120])
def test_each_loss_is_labeled_training_or_validation(
    data: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = str(data / "rows.safetensors")
    result = call("train", data, "--epochs", "2", "--lr", "0.01", "--validation", rows)

    text = " ".join(result.stdout.split())
    assert result.exit_code == 0, result.output
    assert all(meaning in text for meaning in LEGEND.values())
    assert text.count("training loss") == text.count("validation loss") == 4  # the legend too
    assert not re.search(r"(?<!training )(?<!validation )loss", text)
    assert max(map(len, result.stdout.splitlines())) <= width
    assert "\x1b" not in result.output


def test_a_training_without_validation_explains_no_validation_loss(data: Path) -> None:
    result = call("train", data, "--steps", "1", "--lr", "0.01")
    assert "History: 1 epoch, 1 step\n" in result.stdout
    assert "training loss: the mean" in result.stdout
    assert "validation" not in result.stdout


def test_weights_that_are_not_saved_are_announced(data: Path, tmp_path: Path) -> None:
    course, warning = ("--steps", "1", "--lr", "0.01"), "the weights will not be saved"
    assert warning in call("train", data, *course).stderr
    for option in ("--out", "--checkpoint"):
        assert warning not in call("train", data, *course, option, str(tmp_path / option)).output


def test_training_resumes_bit_for_bit(data: Path, tmp_path: Path) -> None:
    def weights(name: str, *options: str) -> bytes:
        out, saved = tmp_path / "weights", str(tmp_path / name)
        result = call("train", data, "--checkpoint", saved, "--out", str(out), *options)
        assert result.exit_code == 0, result.output
        return out.read_bytes()

    course = ("--lr", "0.01", "--seed", "3")
    whole = weights("whole", "--steps", "14", *course)
    part = weights("part", "--steps", "5", "--save-every", "5", *course)

    assert part != whole
    assert weights("part", "--steps", "14", "--resume") == whole


def test_resuming_from_nothing_names_the_folder(data: Path, tmp_path: Path) -> None:
    """Without a learning rate no training can start there instead."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.safetensors").touch()
    for name, fact in (
        ("typo", "typo does not exist, so there is no training to resume; give the folder"),
        ("empty", "empty holds no checkpoint, so there is no training to resume"),
        ("a.safetensors", "a.safetensors is a file; give the folder of the checkpoints"),
    ):
        place = tmp_path / name
        result = call("train", data, "--steps", "3", "--resume", "--checkpoint", str(place))
        assert f"{tmp_path}/{fact}" in str(result.exception)
        assert place.exists() == (name != "typo")


@pytest.mark.parametrize("command", ["train", "predict"])
def test_the_folder_of_an_output_is_made_with_it(command: str, data: Path, tmp_path: Path) -> None:
    out, rate = tmp_path / "new/one/weights.safetensors", ("--steps", "1", "--lr", "0.1")
    course = rate if command == "train" else ()
    failed = call(command, data, *course, "--out", str(out), rows="none.npz")
    assert failed.exit_code != 0
    assert not (tmp_path / "new").exists()
    assert call(command, data, *course, "--out", str(out)).exit_code == 0
    assert out.is_file()


def test_training_with_pauses_has_equal_results(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    def trained(*options: str) -> bytes:
        out = tmp_path / "weights"
        result = call("train", data, "--steps", "3", "--lr", "0.01", "--out", str(out), *options)
        assert result.exit_code == 0, result.output
        assert f"written {out}" in result.stdout.splitlines()
        return out.read_bytes()

    charge = tmp_path / "capacity"
    charge.write_text("21\n")
    assert trained("--duty", "50", "--pause-below", "20", "--battery", str(charge)) == trained()
    wrong = call("train", data, "--steps", "3", "--lr", "0.01", "--battery", str(charge))
    assert "`battery` `pause_below`" in str(wrong.exception)


def test_training_needs_either_epochs_or_steps(data: Path) -> None:
    for options in ((), ("--epochs", "1", "--steps", "1")):
        assert "--epochs or --steps" in call("train", data, "--lr", "0.1", *options).output


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("train", ("--resume",), "--resume without --checkpoint"),
        ("train", ("--save-every", "5", "--on-nan", "rollback"), "--save-every, --on-nan without"),
        ("train", ("--mean", "0.5"), "--mean and --std are for folders of pictures"),
        ("train", ("--out", "rows/weights"), "/rows is a file, not a folder; choose another"),
        ("predict", ("--out", "rows.npz"), "predict writes safetensors"),
    ],
)
def test_unusable_options_are_reported_before_any_work(
    data: Path, name: str, options: tuple[str, ...], message: str
) -> None:
    Path("rows").touch()
    course = ("--steps", "1", "--lr", "0.1") if name == "train" else ()

    result = call(name, data, *course, *options)

    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "epoch 1" not in result.output


def test_rows_may_be_split_over_several_files(data: Path) -> None:
    more = ("--data", f"input={data / 'inputs.npy'}")

    evaluated = call("evaluate", data, *more, rows="labels.npz")

    assert evaluated.stdout == call("evaluate", data).stdout


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("nosuch.npz", "cannot be read"),
        ("inputs.npy", "does not say of which input it is"),
        ("net", "is no data file"),
    ],
)
def test_invalid_files_are_reported(data: Path, rows: str, message: str) -> None:
    result = call("evaluate", data, rows=rows)

    assert isinstance(result.exception, FinetuneError)
    assert message in str(result.exception)


def test_a_name_in_two_files_is_an_error(data: Path) -> None:
    result = call("evaluate", data, "--data", str(data / "labels.npz"))

    assert "holds target, which another file holds too" in str(result.exception)
