"""Options that commands share: an optimizer's name and numbers, input shapes."""

from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pockengine.cli.compile import compile_command, recomputation_lines
from pockengine.cli.optimizers import read_optimizer
from pockengine.cli.option_fields import compile_options
from pockengine.cli.options import OutputFile, OutputFolder, shape
from pockengine.compiler.ir.recomputation import Recomputation
from pockengine.compiler.optim import AdamW, Lion, Muon, Sgd
from pockengine.compiler.option import flag_of
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.compiler.storage import Storage
from pockengine.options import CompileOptions


def test_a_folder_below_a_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for output in (OutputFile(), OutputFolder()):
        with pytest.raises(click.BadParameter, match=f"{tmp_path}/file is a file, not a folder"):
            output.convert(str(tmp_path / "file" / "new"), None, None)
        assert output.convert(str(tmp_path / "new" / "one"), None, None).name == "one"
    assert not (tmp_path / "new").exists()
    with suppress(click.BadParameter):  # the root, which has no parent, may be read-only
        assert OutputFolder().convert("/", None, None) == Path("/")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sgd", Sgd()),
        ("SGD:momentum=0.9,nesterov=true", Sgd(momentum=0.9, nesterov=True)),
        (
            "muon:ns_steps=3,adjust_lr_fn=match_rms_adamw,ns_coefficients=3/-4/2",
            Muon(ns_steps=3, adjust_lr_fn="match_rms_adamw", ns_coefficients=(3.0, -4.0, 2.0)),
        ),
        ("adamw:betas=0.9/0.98,weight_decay=0.1", AdamW(betas=(0.9, 0.98), weight_decay=0.1)),
        ("lion:", Lion()),
    ],
)
def test_an_optimizer_is_parsed_with_its_settings(text: str, expected: Any) -> None:
    assert read_optimizer(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adamx", "'adamx' is none of adadelta"),
        ("sgd:speed=1", "sgd has no 'speed'; it has momentum"),
        ("sgd:momentum", "must read momentum=0"),
        ("sgd:nesterov=1", "must read nesterov=false"),
        ("adam:betas=0.9", "must read betas=0.9/0.999"),
        ("muon:ns_steps=2.5", "must read ns_steps=5"),
        ("muon:others=adam", "muon has no 'others'"),
    ],
)
def test_invalid_optimizers_are_reported(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        read_optimizer(text)


def test_a_shape_is_parsed() -> None:
    assert shape("a=b=1x3x8") == ("a=b", (1, 3, 8))
    for text in ("x", "x=", "=3", "x=3x0", "x=-1"):
        with pytest.raises(click.BadParameter, match="is no input with its sizes"):
            shape(text)


def test_every_field_with_a_help_text_is_an_option() -> None:
    offered = {flag for option in compile_command.params for flag in option.opts}
    parts = [part for part in (*fields(CompileOptions), *fields(Storage)) if part.metadata["help"]]
    assert len(parts) > 12
    assert {flag_of(part) for part in parts} <= offered


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], CompileOptions(check=True)),
        (["--clip=1", "--accumulate=2"], {"clip": Clip(norm=1.0), "micro_batches": 2}),
        (["--memory-budget=4KB", "--output="], {"memory_budget": 4000, "outputs": ()}),
        (["--output=a", "--output=b", "--bf16"], {"outputs": ("a", "b"), "bf16": True}),
        (["--states=bf16", "--no-check"], {"storage": Storage(states="bf16"), "check": False}),
    ],
)
def test_options_of_a_command_are_one_value(arguments: list[str], options: Any) -> None:
    seen: list[CompileOptions] = []
    command = click.command()(compile_options(check=True)(lambda options: seen.append(options)))
    CliRunner().invoke(command, arguments, catch_exceptions=False)
    expected = CompileOptions(check=True)
    assert seen == [
        options if isinstance(options, CompileOptions) else replace(expected, **options)
    ]


def test_recomputation_is_reported() -> None:
    assert not recomputation_lines(None)
    assert not recomputation_lines(Recomputation((), 0, 500, 500))
    (line,) = recomputation_lines(Recomputation(("x", "y"), 400_000, 5000, 3000))
    assert line == "recomputed 2 values: 0.4 M more multiply-adds, peak 5,000 -> 3,000 bytes"
