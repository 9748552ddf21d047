"""No table truncates a name, a number or a command, at any width."""

import io
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.box import SIMPLE
from rich.table import Table

from pockengine.cli.main import cli
from pockengine.errors import CompileError
from pockengine.farm.cli import base, boards, results
from pockengine.finetune.lm.plan import LmMemory, Unplanned, plans
from pockengine.terminal import PlainConsole, counted
from pockengine.tests.farm.helpers import record
from pockengine.tests.repo.tree import ROOT, files

WORDS = ("features.17.conv.0.1.weight", "12,345,678", "3.00 MiB", "full", "-", "last-2-blocks")
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def shown(table: Table, width: int) -> list[str]:
    console = PlainConsole(width)
    console.file = io.StringIO()
    console.print(table)
    return console.file.getvalue().splitlines()


def drawn(seed: int) -> tuple[Table, set[str]]:
    source = random.Random(seed)
    table = Table(title="a title", caption="a caption")
    count = source.randint(1, 12)
    for i in range(count):
        table.add_column(f"column {i}", justify=source.choice(["left", "right"]))
    rows = [[source.choice(WORDS) for _ in range(count)] for _ in range(source.randint(1, 5))]
    for row in rows:
        table.add_row(*row)
    return table, {cell for row in rows for cell in row}


@pytest.mark.parametrize("seed", range(40))
def test_no_cell_of_any_table_is_truncated_within_the_width(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    table, cells = drawn(seed)
    for width in (80, 100):
        lines = shown(table, width)
        text = "\n".join(lines)
        assert max(map(len, lines)) <= width
        assert ELLIPSIS not in text
        assert all(word in text for cell in cells for word in cell.split())


def test_a_caption_takes_the_whole_width_below_a_narrow_table() -> None:
    table = Table(caption="saved: alive from the forward pass to the backward one", box=SIMPLE)
    for name in ("layer", *(f"a_very_long_heading_{n}" for n in range(3))):
        table.add_column(name, justify="right")
    table.add_row("conv", *"123")
    lines = shown(table, 60)
    assert len([line for line in lines if "layer" in line]) == 2, "the last part is narrow"
    assert lines[-1] == table.caption


def test_constant_columns_and_the_caption_are_separate_lines() -> None:
    table = Table(caption="time is modelled", box=SIMPLE)
    for name in ("device", *(f"a_very_long_heading_{n}" for n in range(3))):
        table.add_column(name, justify="right")
    table.add_row("rpi4", "1", "2", "3")
    table.add_row("rpi5", "1", "5", "6")
    assert shown(table, 60)[-2:] == ["In every row: a_very_long_heading_0 1", "time is modelled"]


def test_a_count_has_its_noun() -> None:
    assert [counted(n, "job") for n in (0, 1, 1200)] == ["0 jobs", "1 job", "1,200 jobs"]


def test_a_word_wider_than_the_terminal_is_wrapped() -> None:
    table = Table()
    table.add_column("path")
    table.add_row("x" * 200)
    assert "".join(shown(table, 80)).count("x") == 200


def test_lines_of_a_table_have_no_trailing_spaces() -> None:
    table = Table("for", "found", box=SIMPLE, title="packages")
    table.add_row("torch", "torch 2.14, jax")
    table.add_row("qnn", "no")
    output = io.StringIO()
    terminal = PlainConsole(80)
    terminal.file = output
    terminal.print(table)
    lines = output.getvalue().splitlines()
    assert lines[-2].split() == ["qnn", "no"]
    assert [line for line in lines if line != line.rstrip()] == []


def test_columns_sets_the_width_of_piped_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert PlainConsole(140).width == 77
    monkeypatch.delenv("COLUMNS")
    assert PlainConsole(140).width == 140


COMMANDS = (
    *(["doctor", "--quick"], ["models"], ["devices"], ["boards"], ["inspect", "cnn-8"]),
    *(["results"], ["passes", "--list"], ["jobs"], ["leases"], ["quarantine"], ["log"]),
    ["plan-lm", "llama-110m", "--scheme", "full", "--scheme", "lora", "--max-length", "64"],
)
"""Commands whose output depends only on stored records, this package, or shapes."""


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Store records with long names, and an empty user inventory."""
    long = {"model": "mobilenet_v2-0.35-96", "scheme": "last-2-blocks", "metric": "max_rel_error"}
    records = [
        record(**long, device=name, commit=commit)
        for name in ("stm32f746", "snapdragon-dsp")
        for commit in ("a", "b")
    ]
    monkeypatch.setattr(results, "stored", lambda *_: records)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def planned() -> Iterator[None]:
    """Plan the decoder, which takes seconds, once for all widths."""
    found: list[LmMemory | Unplanned] = []

    def plans_once(*arguments: Any) -> list[LmMemory | Unplanned]:
        found.extend(() if found else plans(*arguments))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pockengine.cli.plan_lm.plans", plans_once)
        yield


@pytest.mark.usefixtures("planned", "stored")
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: words[0])
def test_output_fits_without_cuts_and_colors(
    arguments: Sequence[str], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for module in (base, boards, results):
        monkeypatch.setattr(module, "CONSOLE", PlainConsole(140))
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code in (0, 1), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.stdout
    assert ELLIPSIS not in result.output
    assert "\x1b" not in result.output
    assert max(map(len, result.stdout.splitlines())) <= width


def decoder_plan() -> LmMemory:
    sizes = (4_400_193_536, 8_800_387_072, 526_336, 3_456_789_012)
    names = {"frozen_weights": "f32", "saved_activations": "f32", "states": "f32"}
    names |= {"scheme": "full", "trained_weights": "f32"}
    fields = ("trained_bytes", "states_bytes", "frozen_bytes", "arena_bytes")
    bytes_of = dict(zip(fields, sizes, strict=True))
    return LmMemory(**names, trained=1_100_048_384, **bytes_of, orin_ms=98_765.4)


def test_the_plan_of_a_decoder_is_one_table_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pockengine.cli.plan_lm.plans", lambda *_: [decoder_plan()])
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(cli, ["plan-lm", "llama-110m", "--scheme", "full"])
    lines = result.stdout.splitlines()
    assert sum(line.split()[:1] == ["full"] for line in lines) == 1, result.output
    assert max(map(len, lines)) <= 80


def test_a_plan_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    unplanned = Unplanned("lora", "int4", "an arena of 9 bytes, not 8")
    command = ["plan-lm", "llama-110m"]
    monkeypatch.setattr("pockengine.cli.plan_lm.plans", lambda *_: [decoder_plan(), unplanned])
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0
    assert [line.split()[:3] for line in result.stdout.splitlines() if " lora " in line] == [
        ["lora", "int4", "-"]
    ]
    assert "lora, int4: an arena of 9 bytes, not 8" in result.stdout
    (*_, row) = json.loads(CliRunner().invoke(cli, [*command, "--json"]).stdout)["plans"]
    assert row == {"scheme": "lora", "frozen_weights": "int4", "why": "an arena of 9 bytes, not 8"}

    monkeypatch.setattr("pockengine.cli.plan_lm.plans", lambda *_: [unplanned])
    with pytest.raises(CompileError, match="an arena of 9 bytes, not 8"):
        CliRunner().invoke(cli, command, catch_exceptions=False)


def test_a_terminal_without_color_support_has_no_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    table, cells = drawn(0)
    text = "\n".join(shown(table, 80))
    assert not re.search(r"\x1b\[[0-9;]*[34][0-7]", text)
    assert all(word in text for cell in cells for word in cell.split())


def test_only_this_console_prints_tables() -> None:
    """Only the animated progress lines, which are not tables, have another console."""
    allowed = {"terminal.py", "farm/progress.py"}
    own = [path for path in files("*.py") if path.parts[0] not in ("tests", "examples")]
    found = {
        str(path)
        for path in own
        if re.search(r"(?<!Plain)\bConsole\((?!\)\.is_terminal)", (ROOT / path).read_text())
    }
    assert found <= allowed


def test_unencodable_output_is_escaped() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    console = PlainConsole()
    console.file = file
    console.print("größe → 3")
    file.flush()

    assert file.buffer.getvalue() == "größe \\u2192 3\n".encode("latin-1")
