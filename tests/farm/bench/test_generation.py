"""The suite of generation: equal tokens, times in turns, records, refusals."""

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pockengine.errors import FarmError
from pockengine.farm.bench import generation
from pockengine.farm.bench.generation import GenerationMeasurement, measure_generation
from pockengine.farm.bench.generation_table import generation_records, generation_table
from pockengine.farm.cli.bench import main
from pockengine.farm.cli.bench_generation import generation_plan
from pockengine.farm.cli.suites import Choice
from pockengine.farm.references.engines import (
    LLAMA_CPP,
    LM_OWN,
    LM_TORCH,
    STORAGES,
    Engine,
    find_lm_engine,
)
from pockengine.farm.references.worker import open_lm_worker
from pockengine.models.gguf_model import TYPES
from pockengine.tests.farm.bench.warm import warm_workers
from pockengine.tests.finetune.lm.decoders import llama, save
from pockengine.tests.models.shared_traces import shared_traces

PROMPT, ANSWER = 40, 6


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    modules = "transformers.models.llama.modeling_llama", "peft"
    with shared_traces(), warm_workers(LM_TORCH.worker, *modules):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = llama(vocab_size=320, hidden_size=64, intermediate_size=128)
    return save(tmp_path_factory.mktemp("models") / "tiny", module)


def test_engines_choose_the_same_tokens_and_take_turns(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurement = GenerationMeasurement(str(folder), PROMPT, ANSWER, threads=1, rounds=2)
    missing = {"llama.cpp": "llama_cpp is not installed"}
    monkeypatch.setattr(generation, "why_missing", lambda engine: missing.get(engine.name))
    result = measure_generation(measurement, tmp_path)
    assert [line.engine for line in result.lines] == ["torch-eager", "pockengine"]
    assert result.absent == "llama.cpp: llama_cpp is not installed"
    for line in result.lines:
        assert (line.prompt.n, line.token.n) == (2 * generation.PROMPTS, 2 * generation.ANSWERS)
        assert line.token.min > 0
    records = generation_records(result, 1)
    found = {(x.engine, x.metric): x.value for x in records}
    assert len(found) == 4
    assert found["pockengine", "token_ms"] == result.lines[1].token.median
    assert {(x.model, x.seq_len, x.dtype) for x in records} == {("tiny-40", PROMPT, "f32")}
    assert generation_table(result, 1).row_count == 2


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama_cpp is not installed")
def test_llama_cpp_answers_from_the_same_weights(folder: Path, tmp_path: Path) -> None:
    """In f32 its tokens are ours; the bench does not require that of weights in few bits."""
    measurement = GenerationMeasurement(str(folder), PROMPT, ANSWER, threads=1, rounds=2)
    result = measure_generation(measurement, tmp_path)
    assert [line.engine for line in result.lines] == ["torch-eager", "llama.cpp", "pockengine"]
    with contextlib.ExitStack() as stack:
        answers = [
            stack.enter_context(open_lm_worker(engine, tmp_path / "answer", 1, opens)).predict()
            for engine, opens in (
                (find_lm_engine("torch-eager"), ""),
                (find_lm_engine("llama.cpp"), str(tmp_path / "model.gguf")),
            )
        ]
    assert answers[0].tolist() == answers[1].tolist()


@pytest.mark.parametrize("storage", ["int4", "bf16"])
def test_stored_weights_answer_as_what_they_decode_to(
    storage: str, folder: Path, tmp_path: Path
) -> None:
    measurement = GenerationMeasurement(str(folder), PROMPT, ANSWER, 1, rounds=2, storage=storage)
    result = measure_generation(measurement, tmp_path)
    assert result.lines[-1].engine == f"pockengine-{storage}"
    assert {x.dtype for x in generation_records(result, 1)} == {"f32", storage}


def test_engines_exist_for_each_storage() -> None:
    assert set(TYPES) == set(STORAGES)
    for framework in (LM_OWN, LLAMA_CPP):
        for storage in STORAGES:
            engine = Engine(framework, dtype=storage)
            assert find_lm_engine(engine.name) == engine


def test_wrong_tokens_have_no_speed() -> None:
    def answering(*tokens: int) -> Any:
        return SimpleNamespace(predict=lambda: np.array(tokens))

    workers = {("torch-eager", phase): answering(4, 7) for phase in ("prompt", "answer")}
    workers |= {("pockengine", phase): answering(4, 8) for phase in ("prompt", "answer")}
    with pytest.raises(FarmError, match="token 1 of the answer is 8, and 7 by transformers"):
        generation._check_tokens(workers)


def test_prompts_beyond_the_positions_are_refused(folder: Path, tmp_path: Path) -> None:
    measurement = GenerationMeasurement(str(folder), 60, 10, threads=1, rounds=1)
    with pytest.raises(FarmError, match="has positions for 64 tokens, and a prompt of 60 with"):
        measure_generation(measurement, tmp_path)


def test_models_that_exceed_memory_are_not_started(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "free_bytes", lambda: 1000)
    measurement = GenerationMeasurement(str(folder), PROMPT, ANSWER, threads=1, rounds=1)
    with pytest.raises(FarmError, match=r"weights of all workers take .* and 0\.0 GB are free"):
        measure_generation(measurement, tmp_path)


def test_plan_has_two_prompts_unless_one_is_chosen() -> None:
    cells = generation_plan(Choice(threads=2))
    assert [(x.model, x.prompt, x.answer) for x in cells] == [
        ("llama-110m", 128, 64),
        ("llama-110m", 512, 64),
    ]
    (cell,) = generation_plan(Choice(("llama-110m",), lengths=(32,), quick=True))
    assert (cell.prompt, cell.rounds, cell.storage) == (32, 3, "f32")
    stored = generation_plan(Choice(lengths=(32,), storages=("f32", "int8")))
    assert [cell.storage for cell in stored] == ["f32", "int8"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device=rpi4"], "--suite=generation runs on this machine, not on"),
        (["--scheme=lora"], "--scheme does not go with --suite=generation"),
        (["--batch=2"], "--batch does not go with --suite=generation"),
        (["--model=nonsense"], "no decoder that is known here"),
    ],
)
def test_commands_that_do_not_fit_are_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["--suite=generation", *arguments])
    assert result.exit_code == 1
    assert message in result.output
