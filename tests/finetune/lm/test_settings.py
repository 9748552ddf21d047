"""Settings that cannot train are refused before a compilation; a resumed training has the same."""

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from pockengine.cli.finetune_lm import finetune_lm
from pockengine.compiler.optim import AdamW, LoraPlus
from pockengine.errors import CompileError, FinetuneError
from pockengine.finetune.lm.methods import Method
from pockengine.finetune.lm.run import RunSettings, finetune
from pockengine.finetune.lm.sampling import Sampling
from pockengine.finetune.lm.settings import Settings, Texts, TrainingSettings, check_same, keep
from pockengine.options import CompileOptions


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainingSettings(8, lr=nan), "--lr is nan; give"),
        (lambda: TrainingSettings(8, lr=-1.0), "--lr is -1; give"),
        (lambda: TrainingSettings(8, neftune=inf), "--neftune is inf; give"),
        (
            lambda: TrainingSettings(8, seed=1 << 32),
            "--seed is 4294967296; give at most 4294967295",
        ),
        (lambda: Sampling(top_p=nan), "top_p is nan; give"),
        (lambda: Method("dpo", beta=inf), "beta is inf; give"),
        (lambda: LoraPlus(AdamW(), nan), "the ratio of LoRA. is nan; give"),
    ],
)
def test_numbers_out_of_range_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises((FinetuneError, CompileError), match=message):
        make()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"warmup": 4}, "--warmup is 4, and the training has 4 updates"),
        ({"warmup": 2, "steps": 4}, "--warmup is 2, and the training has 2 updates"),
        ({"batch": 8}, "the texts make 7 rows of 16 tokens, and a batch has 8"),
    ],
)
def test_trainings_without_steps_are_refused_before_compilation(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    course = replace(TrainingSettings(16, batch=1, epochs=1), **change)
    options = CompileOptions(micro_batches=2)
    settings = Settings(tmp_path, Texts(tmp_path), course, options)
    rows: Any = SimpleNamespace(training=SimpleNamespace(rows=7), prompts=None)
    with pytest.raises(FinetuneError, match=message):
        finetune(settings, rows, tmp_path / "out", RunSettings())


def test_resumed_training_has_the_same_files(tmp_path: Path) -> None:
    names = {name: tmp_path / name for name in ("data", "scheme.toml", "teacher")}
    for path in names.values():
        path.write_text("first")
    method = Method("distill", teacher=names["teacher"])
    options = CompileOptions(scheme=str(names["scheme.toml"]))
    course = TrainingSettings(8, method=method)
    settings = Settings(tmp_path, Texts(names["data"]), course, options)
    keep(settings, tmp_path / "settings.json")
    check_same(settings, tmp_path / "settings.json")
    for name, path in names.items():
        path.write_text("second")
        with pytest.raises(FinetuneError, match=f"started with another {Path(name).stem}; resume"):
            check_same(settings, tmp_path / "settings.json")
        path.write_text("first")


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        (
            "owner/net",
            ("there is no folder owner/net", "`hf download NAME --local-dir FOLDER`"),
        ),
        ("net.gguf", ("net.gguf is a file; give its folder, which has config.json and tokenizer",)),
    ],
)
def test_a_model_that_is_no_folder_is_named(
    name: str, facts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.gguf").touch()
    options = [name, "--data", "net.gguf", "--out", "out"]
    result = CliRunner().invoke(finetune_lm, options, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert all(fact in result.output for fact in facts)
