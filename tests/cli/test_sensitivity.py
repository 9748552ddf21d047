"""`pockengine sensitivity`: a table and its report, from a model's name and a data file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from pockengine.cli.main import cli
from pockengine.cli.options import ModelChoice, batch_of
from pockengine.cli.subject import open_subject
from pockengine.errors import FinetuneError, ImportModelError
from pockengine.finetune.contributions import Item, read_table
from pockengine.tests.finetune.tiny import digits

MODEL = f"{__name__}:perceptron"


def chosen(name: str, batch: int) -> ModelChoice:
    return ModelChoice(name, batch, {}, None)


def perceptron() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """Return a classifier of rows of 64 numbers, and an example of one row."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 12), torch.nn.ReLU(), torch.nn.Linear(12, 10))
    return net, (torch.randn(1, 64),)


@pytest.fixture(name="data")
def rows_of_digits(tmp_path: Path) -> Path:
    examples = digits(120)
    path = tmp_path / "digits.npz"
    np.savez(path, input=examples.inputs["x"].reshape(120, 64), target=examples.labels)
    return path


def test_sensitivity_writes_and_prints_the_table_once(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "contributions.jsonl"
    settings = ["--share", "0.5", "--seeds", "2", "--epochs", "2", "--batch", "16"]
    command = ["sensitivity", MODEL, "--train", str(data), "--out", str(out), *settings]
    first = CliRunner().invoke(cli, [*command, "--workers", "1"])
    table = out.read_bytes()
    again = CliRunner().invoke(cli, command)

    assert first.exit_code == 0, first.output
    assert "6 of 6 trials, 0 to go, about 0 s left" in first.output
    assert "0.weight" in first.stdout
    assert "biases, last 1 blocks" in first.stdout
    assert again.stdout == first.stdout
    assert "6 of 6 trials, 0 to go (started)" in again.output
    assert out.read_bytes() == table
    items = {item for item, _ in read_table(out)[1]}
    assert items == {
        None,
        Item("weight", "0.weight", 0.5, "magnitude"),
        Item("biases", "last 1 blocks"),
    }


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"image": (9, 64)}, "the data have image, which .* does not read; its inputs are input"),
        ({"input": (9, 64), "mask": (9,)}, "the data have mask, which"),
        ({"input": (9, 8, 8)}, r"reads input as rows \[64\]; the data have \[8, 8\]"),
    ],
)
def test_data_of_other_inputs_are_refused_early(
    arrays: dict[str, tuple[int, ...]], words: str, tmp_path: Path
) -> None:
    data, out = tmp_path / "data.npz", tmp_path / "table"
    labels = np.arange(9) % 3
    np.savez(data, target=labels, **{name: np.zeros(s, np.float32) for name, s in arrays.items()})
    command = ["sensitivity", MODEL, "--train", str(data), "--out", str(out)]

    with pytest.raises(FinetuneError, match=words):
        CliRunner().invoke(cli, command, catch_exceptions=False)
    assert list(tmp_path.iterdir()) == [data]


def test_weights_are_loaded_and_a_new_head_is_unchanged(tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    state = perceptron()[0].state_dict()
    save_file({"0.weight": state["0.weight"] + 1, "2.weight": torch.ones(3, 12)}, str(weights))
    subject = open_subject(chosen(MODEL, 4), None, weights)

    assert (subject.batch, subject.classes) == (4, 10)
    expected = (state["0.weight"].T + 1).numpy()
    assert np.array_equal(subject.graph.params["0.weight"].data, expected)
    assert np.array_equal(subject.graph.params["2.weight"].data, state["2.weight"].T.numpy())
    save_file({"9.weight": state["0.weight"]}, str(weights))
    with pytest.raises(FinetuneError, match=r"9\.weight"):
        open_subject(chosen(MODEL, 4), None, weights)


def regressor() -> tuple[torch.nn.Module, tuple[torch.Tensor], str]:
    return *perceptron(), "mse"


def test_trials_of_a_model_that_is_no_classifier_are_refused() -> None:
    with pytest.raises(FinetuneError, match="is trained by mse"):
        open_subject(chosen(f"{__name__}:regressor", 4), None, None)


def usual(batch: int = 6) -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    return perceptron()[0], (torch.randn(batch, 64),)


def needed(batch: int) -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    return usual(batch)


@pytest.mark.parametrize(
    ("function", "batch", "rows"),
    [(usual, None, 6), (usual, 3, 3), (needed, None, 8), (perceptron, None, 1)],
)
def test_a_function_has_its_own_batch(function: Any, batch: int | None, rows: int) -> None:
    """All commands compile the same program as `compile`; 8 is the default batch."""
    model = ModelChoice(f"{__name__}:{function.__name__}", batch, {}, None, 8)

    assert open_subject(model, None, None).batch == rows == batch_of(model.find().graph())


def test_registry_models_get_a_head_and_their_norms_are_frozen() -> None:
    subject = open_subject(chosen("cnn-8", 2), 7, None)

    assert subject.classes == 7
    assert "batch_norm" not in {node.op for node in subject.graph.nodes}
    with pytest.raises(ImportModelError, match="leave --classes out"):
        open_subject(chosen(MODEL, 2), 7, None)


def test_int8_is_measured_and_searched(data: Path, tmp_path: Path) -> None:
    table, scheme = tmp_path / "int8.jsonl", tmp_path / "found.toml"
    rows = tmp_path / "rows.npz"
    np.savez(rows, input=np.load(data)["input"][:32])
    model, int8 = [MODEL, "--batch", "16"], ["--quantize", str(rows)]
    settings = ["--share", "1", "--seeds", "1", "--epochs", "1", "--workers", "1"]
    measured = CliRunner().invoke(
        cli,
        ["sensitivity", *model, *int8, "--train", str(data), "--out", str(table), *settings],
    )
    search = ["search", *model, "--contributions", str(table), "--device", "rpi4"]
    search += ["--out", str(scheme), "--train", str(data), "--validate", "1", "--no-full"]
    searched = CliRunner().invoke(cli, [*search, *int8, "--evaluations", "4"])
    real = CliRunner().invoke(cli, search)

    assert measured.exit_code == 0, measured.output
    assert searched.exit_code == 0, searched.output
    assert "stm32f746" in searched.output
    assert f"Searched for {MODEL}, batch 16, on rpi4" in scheme.read_text()
    assert "give the same MODEL, --weights, --classes, --batch, --max-length and --quantize" in str(
        real.exception
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--quantize", "own"], "has no int8 weights; calibrate it"),
        (["--quantize", "{data}", "--quantize-input", "input"], "trials read rows of real numbers"),
    ],
)
def test_unsupported_int8_is_reported(
    options: list[str], message: str, data: Path, tmp_path: Path
) -> None:
    arguments = [option.format(data=data) for option in options]
    out = str(tmp_path / "table.jsonl")
    done = CliRunner().invoke(
        cli, ["sensitivity", MODEL, "--train", str(data), "--out", out, *arguments]
    )

    assert done.exit_code != 0
    assert message in str(done.exception) + done.output
