"""The comparison with MobileFineTuner, with a fake of its program."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from transformers import GPT2Config, GPT2LMHeadModel

from pockengine.compiler.sparse import Scheme
from pockengine.errors import JobFailed
from pockengine.studies.mobile_finetuner import compare as module
from pockengine.studies.mobile_finetuner.cases import ATTENTION, GPT2, Case
from pockengine.studies.mobile_finetuner.compare import (
    STEPS,
    CaseRow,
    compare,
    main,
    measure_theirs,
)

TOKENS = 8


def small(folder: Path) -> None:
    config = GPT2Config(vocab_size=300, n_positions=32, n_embd=32, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(folder)


def case(scheme: Scheme | str = ATTENTION) -> Case:
    return Case("small", small, scheme, GPT2, "train")


@pytest.fixture
def source(tmp_path: Path) -> Callable[[str], Path]:
    """A clone whose program prints a fixed output, and fails unless the rows are requested."""

    def clone(words: str) -> Path:
        place = tmp_path / "clone" / "examples" / GPT2 / "build"
        place.mkdir(parents=True)
        script = f"#!/bin/sh\ncase \"$*\" in *rows.jsonl*) echo '{words}';; *) exit 3;; esac\n"
        (place / "train").write_text(script)
        (place / "train").chmod(0o755)
        return tmp_path / "clone"

    return clone


def test_another_first_loss_is_an_error(source: Callable[[str], Path]) -> None:
    clone = source("step 1 | loss 9.5000 | step 2 | loss 9.4000")
    with pytest.raises(
        JobFailed, match=r"small: MobileFineTuner, build has a first loss of 9\.5, o"
    ):
        compare(case(), clone, ("build",), TOKENS, 1)


def test_a_text_replaces_a_missing_row(source: Callable[[str], Path], tmp_path: Path) -> None:
    text = Case("small", small, "full", GPT2, "train", row=False)
    with pytest.raises(JobFailed, match="ended with 3"):
        measure_theirs(text, source("loss 9.5000"), "build", tmp_path, TOKENS)


def test_what_is_not_built_is_named_before_anything_runs(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--source", str(tmp_path), "--case", "gpt2-lora"])
    assert done.exit_code == 1
    assert "build/train is not there; build the example" in done.output
    assert "gpt2-lora ..." not in done.output


def test_a_failure_loses_no_case_that_was_measured(
    source: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = source("loss 9.5000")
    found = [CaseRow("gpt2-lora", "pockengine", 0.5, 2**20, 9.5)]
    measured = iter([lambda: found])
    monkeypatch.setattr(module, "compare", lambda *_: next(measured, _fail)())
    arguments = ["--source", str(clone), "--case", "gpt2-lora", "--case", "gpt2-medium-lora"]
    done = CliRunner().invoke(main, [*arguments, "--json", str(tmp_path / "rows.json")])
    assert done.exit_code == 1
    assert "Error: it broke" in done.output
    assert "0.500" in done.output
    assert json.loads((tmp_path / "rows.json").read_text())["seconds"] == 0.5


def _fail() -> list[CaseRow]:
    raise JobFailed("it broke")


def test_what_loading_costs_the_system_is_not_counted(
    source: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SimpleNamespace(ru_utime=5.0, ru_stime=46.0, ru_maxrss=7)
    later = SimpleNamespace(ru_utime=5.0 + 2.0 * STEPS, ru_stime=21.0, ru_maxrss=9)
    runs, wait = iter((first, later)), os.wait4
    monkeypatch.setattr(os, "wait4", lambda pid, flags: (*wait(pid, flags)[:2], next(runs)))
    measured = measure_theirs(case(), source("loss 9.5000"), "build", tmp_path, TOKENS)
    assert measured == (2.0, 9 * 1024, 9.5)


def test_a_program_without_a_loss_is_an_error(
    source: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(JobFailed, match="ended with 0: nothing"):
        measure_theirs(case(), source("nothing"), "build", tmp_path, TOKENS)
