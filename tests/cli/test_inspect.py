"""`pockengine inspect` shows trained params, memory and the cost of a step, by layer."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from pockengine.cli.main import cli


def inspected(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["inspect", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    table: dict[str, Any] = json.loads(result.stdout)
    return table


def layer(table: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (row for row in table["layers"] if row["name"] == name)
    return dict(found)


def test_layers_show_trained_params_memory_and_cost() -> None:
    table = inspected("cnn-8", "--batch", "4", "--optimizer", "adam")

    stem = layer(table, "stem.0")
    assert stem["trains"] == "weight full"
    assert (stem["params"], stem["params_bytes"], stem["states_bytes"]) == (144, 576, 2 * 576)
    assert stem["forward"] == 4 * 8 * 8 * 9 * 16
    assert stem["step"] == 2 * stem["forward"]  # no earlier layer needs a gradient
    assert stem["kept_bytes"] == 4 * 8 * 8 * 16 * 4  # the saved input of its batch norm
    assert sum(row["peak_bytes"] for row in table["layers"]) <= table["arena_bytes"]
    assert sum(row["params"] for row in table["layers"]) == 28698
    stored = sum(row["params_bytes"] + row["states_bytes"] for row in table["layers"])
    assert stored == table["params_bytes"]


def test_frozen_layers_need_no_extra_memory_or_time() -> None:
    frozen = layer(inspected("cnn-8", "--scheme", "head-only"), "stem.0")

    assert frozen["trains"] == ""
    assert frozen["step"] == frozen["forward"]
    assert frozen["kept_bytes"] == frozen["states_bytes"] == 0


def test_an_adapter_belongs_to_the_layer_of_its_weight(tmp_path: Path) -> None:
    scheme = tmp_path / "lora.toml"
    scheme.write_text('default = "frozen"\n[params]\n"head.weight" = { lora = 2, alpha = 4 }\n')

    head = layer(inspected("cnn-8", "--scheme", str(scheme)), "head")

    assert head["trains"] == "weight lora 2"
    assert head["params"] == 32 * 10 + 10 + 2 * (32 + 10)


def test_the_table_has_each_layer_and_the_sum() -> None:
    result = CliRunner().invoke(cli, ["inspect", "cnn-8"])

    assert result.exit_code == 0, result.output
    assert "block1.conv1.0" in result.stdout
    assert "28,698" in result.stdout
    assert "saved, B" in result.stdout
    assert "bytes in all" in result.stdout
    assert "20 params train; arena in bytes: train" in result.stdout


def test_an_artifact_can_be_shown_as_json(tmp_path: Path) -> None:
    folder = str(tmp_path / "net")
    made = CliRunner().invoke(cli, ["compile", "cnn-8", "--no-check", "--out", folder, "--json"])
    shown = inspected(folder)

    assert (
        json.loads(made.stdout)["entries"]["train"]["arena_bytes"]
        == (shown["entries"]["train"]["arena_bytes"])
    )
    assert shown["entries"]["train"]["inputs"]["target"] == "i64[1]"
    assert shown["trained"]["head.weight"] == "full"
    refused = CliRunner().invoke(cli, ["inspect", folder, "--optimizer", "adam"])
    assert refused.exit_code == 2
    assert "is already compiled; leave out --optimizer" in " ".join(refused.output.split())


def test_models_and_devices_can_be_listed_as_json() -> None:
    models = json.loads(CliRunner().invoke(cli, ["models", "--json"]).stdout)
    devices = json.loads(CliRunner().invoke(cli, ["devices", "--json"]).stdout)

    assert {"mobilenet_v2-WIDTH-SIZE", "llama-15m-TOKENS"} <= {row["model"] for row in models}
    assert "rpi4" in devices
    assert "package.module:function" in CliRunner().invoke(cli, ["models"]).stdout


def test_an_artifact_records_how_its_backend_was_chosen(tmp_path: Path) -> None:
    place = str(tmp_path / "net")
    options = ("--batch", "1", "--backend", "auto", "--no-check", "--out", place)
    made = CliRunner().invoke(cli, ["compile", "cnn-8", *options])
    assert made.exit_code == 0, made.output
    assert "ms a step, measured" in made.stdout

    table = inspected(place)
    assert table["backend"] == table["switching"]["chosen"]
    assert {row["backend"] for row in table["switching"]["candidates"]} >= {"c", "onnx"}
    result = CliRunner().invoke(cli, ["inspect", place])
    assert table["switching"]["reason"] in " ".join(result.stdout.split())


def test_kernels_show_their_plan_and_the_runner_up() -> None:
    model = ("resnet18-64", "--scheme", "bias-only", "--device", "rpi4", "--kernels")
    rows = inspected(*model)["kernels"]
    convolutions = [row for row in rows if row["problem"].startswith("conv2d ")]
    assert any(row["plan"].startswith("winograd") for row in convolutions)
    for row in convolutions:
        if row["plan"].startswith("winograd4"):
            assert not row["runner_up"].startswith("winograd4")
            assert row["runner_up_cycles"] >= row["cycles"]
    assert rows[0]["calls"] * rows[0]["cycles"] == max(r["calls"] * r["cycles"] for r in rows)


def test_kernels_are_shown_for_the_c_backend() -> None:
    result = CliRunner().invoke(cli, ["inspect", "cnn-8", "--kernels"])
    assert result.exit_code == 0, result.output
    assert "runner-up" in result.stdout
