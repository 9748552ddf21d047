"""--quantize: int8 on the command line, from rows of samples; invalid options are errors."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from pockengine.cli.main import cli


@pytest.fixture(name="rows")
def rows_of_pictures(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    path = tmp_path / "rows.npz"
    np.savez(path, x=rng.standard_normal((8, 1, 8, 8), np.float32), target=np.arange(8) % 10)
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def inspected(*arguments: str) -> dict[str, Any]:
    result = run("inspect", "cnn-8", *arguments, "--json")
    assert result.exit_code == 0, result.output
    table: dict[str, Any] = json.loads(result.stdout)
    return table


def test_compile_writes_an_int8_artifact_that_train_accepts(rows: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "net")
    chosen = ("--quantize", rows, "--quantize-method", "mse", "--quantize-gradients", "f32")
    made = run("compile", "cnn-8", *chosen, "--no-qas", "--no-check", "--out", folder)
    assert made.exit_code == 0, made.output
    trained = run("train", folder, "--data", rows, "--steps", "2", "--lr", "0.01")
    assert trained.exit_code == 0, trained.output
    manifest = json.loads((tmp_path / "net" / "manifest.json").read_text())
    assert '"i8"' in json.dumps(manifest)


def test_inspect_shows_which_layers_are_int8(rows: str) -> None:
    table, floats = inspected("--quantize", rows), inspected()

    assert table["arena_bytes"] < floats["arena_bytes"]
    lines = {(line["layer"], line["op"]): line for line in table["arithmetic"]}
    assert lines["stem.0", "conv2d"] == {
        "layer": "stem.0",
        "op": "conv2d",
        "numbers": "int8",
        "why": "",
    }
    assert lines["head", "add"]["why"] == "its result is not rounded to int8"
    assert "arithmetic" not in floats
    shown = run("inspect", "cnn-8", "--quantize", rows).stdout
    assert "arithmetic on activations" in shown


def test_f32_gradients_need_no_gradient_scales(rows: str) -> None:
    int8 = inspected("--quantize", rows, "--scheme", "full")
    real = inspected("--quantize", rows, "--scheme", "full", "--quantize-gradients", "f32")
    assert int8["arena_bytes"] != real["arena_bytes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--quantize-method", "mse"), "--quantize-method without --quantize"),
        (("--no-qas",), "--no-qas without --quantize"),
        (("--quantize", "own", "--quantize-method", "mse"), "leave out --quantize-method"),
        (("--quantize", "{rows}", "--quantize-share", "0.3"), "read by --quantize-method percent"),
        (("--quantize", "own"), "has no int8 weights; calibrate it"),
        (("--quantize", "missing.npz"), "missing.npz cannot be read"),
        (("--quantize", "{rows}", "--quantize-input", "y"), r"inputs \['y'\] cannot be int8"),
        (("--quantize", "{rows}", "--batch", "16"), "give 16 rows or more"),
    ],
)
def test_invalid_options_are_reported(arguments: tuple[str, ...], message: str, rows: str) -> None:
    result = run("inspect", "cnn-8", *(text.format(rows=rows) for text in arguments))
    assert result.exit_code != 0
    assert re.search(message, f"{result.output}{result.exception}")
