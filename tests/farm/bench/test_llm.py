"""The suite of decoders: training, checks, records, missing engines."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner

from pockengine.compiler.ir.graph import ParamKind
from pockengine.devices import find_device
from pockengine.errors import FarmError, ImportModelError
from pockengine.farm.bench import llm as bench_llm
from pockengine.farm.bench import llm_case
from pockengine.farm.bench.check import loss_error
from pockengine.farm.bench.llm import LlmMeasurement, LlmResult, in_memory, measure_llm
from pockengine.farm.bench.llm_case import RATE, drawn_folder, drawn_tokens, make_lm_case
from pockengine.farm.bench.llm_table import llm_records, llm_table
from pockengine.farm.cli.bench import main
from pockengine.farm.cli.bench_llm import check_llm, llm_plan
from pockengine.farm.cli.suites import Choice
from pockengine.farm.references.engines import LM_TORCH, find_lm_engine
from pockengine.farm.references.worker import why_missing
from pockengine.models import decoders
from pockengine.tests.farm.bench.warm import warm_workers
from pockengine.tests.finetune.lm.decoders import llama, save
from pockengine.tests.models.shared_traces import shared_traces

BATCH, LENGTH, STEPS = 2, 16, 4
SIZES = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 320}
ENGINES = (
    *("pockengine", "pockengine-bf16", "pockengine-int4", "pockengine-8bit"),
    "torch-compile-malloc",
)
SCHEMES = ("full", "lora", "sparse")
ROUNDED = ("pockengine-bf16",) if find_device("host").cpu.bf16 else ()
"""Engines that only some CPUs support."""
BF16_FAULT = "host (native) has no bf16 products; compile for f32"


def measurement(folder: Path, *schemes: str, engines: tuple[str, ...] = ENGINES) -> LlmMeasurement:
    return LlmMeasurement(str(folder), BATCH, LENGTH, schemes, engines, 1, 1, STEPS)


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    modules = "transformers.models.llama.modeling_llama", "peft"
    with shared_traces(), warm_workers(LM_TORCH.worker, *modules):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("models") / "tiny", llama(**SIZES))


@pytest.fixture(scope="module")
def result(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LlmResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_llm, "TURN_MS", 1.0)
        missing = {"torch-compile-malloc": "not here"}
        patch.setattr(bench_llm, "why_missing", lambda engine: missing.get(engine.name))
        return measure_llm(measurement(folder, *SCHEMES), tmp_path_factory.mktemp("llm"))


@pytest.mark.nightly
def test_every_scheme_is_trained_in_pytorch_and_pockengine(result: LlmResult) -> None:
    frozen = ("pockengine", *ROUNDED, "pockengine-int4")
    assert [(line.scheme, line.engine) for line in result.lines] == [
        ("full", "torch-eager"),
        ("full", "pockengine"),
        *(("full", engine) for engine in (*ROUNDED, "pockengine-8bit")),
        *(("lora", engine) for engine in ("peft", *frozen)),
        *(("sparse", engine) for engine in ("torch-eager", *frozen, "pockengine-8bit")),
    ]
    without = () if ROUNDED else SCHEMES
    unrounded = {f"pockengine-bf16 {scheme}": BF16_FAULT for scheme in without}
    missing = dict(result.missing)
    assert "no state of 4096 elements" in missing.pop("pockengine-8bit lora")
    assert missing == {"torch-compile-malloc full": "not here", **unrounded}
    for line in result.lines:
        assert 0 < line.timing.min <= line.timing.median
        assert len(line.losses) == STEPS
        assert line.peak_rss_bytes > 2**20
        assert line.error < (2e-2 if line.engine in (*ROUNDED, "pockengine-8bit") else 1e-4)


@pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx_lm is not installed")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_mlx_trains_what_pytorch_trains(scheme: str, folder: Path, tmp_path: Path) -> None:
    case = measurement(folder, scheme, engines=("pockengine", "mlx", "mlx-bf16"))
    result = measure_llm(case, tmp_path)
    assert not result.missing
    errors = {line.engine: line.error for line in result.lines}
    assert errors["mlx"] < 1e-4
    assert errors["mlx"] < errors["mlx-bf16"] < 2e-2


def test_some_blocks_are_trained_and_compared_with_pytorch(folder: Path, tmp_path: Path) -> None:
    case = measurement(folder, "sparse-1-1", engines=("pockengine",))
    result = measure_llm(case, tmp_path)
    assert [line.engine for line in result.lines] == ["torch-eager", "pockengine"]
    assert result.lines[1].error < 1e-4


@pytest.mark.nightly
def test_losses_match_transformers(folder: Path, result: LlmResult) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    losses = []
    for ids in torch.from_numpy(drawn_tokens(SIZES["vocab_size"], (STEPS, BATCH, LENGTH))):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    ours = next(x for x in result.lines if (x.engine, x.scheme) == ("pockengine", "full"))
    assert ours.losses == pytest.approx(losses, rel=1e-4)
    rounded = next(x for x in result.lines if x.engine == "pockengine-int4")
    assert rounded.losses != pytest.approx(ours.losses, rel=1e-6)


@pytest.mark.nightly
def test_figures_become_records_and_a_table(result: LlmResult) -> None:
    records = llm_records(result, 1)
    steps = {(x.engine, x.scheme): x for x in records if x.metric == "step_ms"}
    speeds = {(x.engine, x.scheme): x.value for x in records if x.metric == "tokens_per_s"}
    assert len(steps) == len(result.lines)
    for key, step in steps.items():
        assert speeds[key] * step.value == pytest.approx(1e3 * BATCH * LENGTH)
        assert (step.seq_len, step.model) == (LENGTH, f"tiny-{LENGTH}")
    assert steps["pockengine-int4", "lora"].dtype == "int4"
    assert llm_table(result, 1).row_count == len(result.lines) + len(result.missing)


def test_wrong_losses_have_no_speed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = loss_error
    monkeypatch.setattr(
        bench_llm, "loss_error", lambda found, expected: error([1.01 * x for x in found], expected)
    )
    found = measure_llm(measurement(folder, "sparse", engines=("pockengine",)), tmp_path)
    assert [line.engine for line in found.lines] == ["torch-eager"]
    assert "it trains something else" in found.missing["pockengine sparse"]


def test_engines_that_exceed_memory_are_not_started(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_llm, "free_bytes", lambda: 1000)
    with pytest.raises(FarmError, match=r"torch-eager takes .* and 0.0 GB are free"):
        measure_llm(measurement(folder, "full", engines=("pockengine",)), tmp_path)


def test_engines_that_fit_together_alternate() -> None:
    assert in_memory([5, 3, 4, 9, 1], 8) == [[0, 1], [2], [3], [4]]
    assert in_memory([1, 2, 3], 10) == [[0, 1, 2]]


def test_known_decoders_have_random_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {**SIZES, "num_hidden_layers": 1, "num_attention_heads": 4, "tie_word_embeddings": True}
    monkeypatch.setitem(decoders.SIZES, "small", small)
    monkeypatch.setattr(llm_case, "KNOWN", ("small",))
    case = make_lm_case("small", (1, 8), 1, drawn_folder("small", tmp_path))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    for name, param in case.graph.params.items():
        if param.kind is ParamKind.WEIGHT or "norm" in name:
            assert np.isfinite(param.data).all(), name
    assert case.parameters >= sum(x.numel() for x in model.parameters())
    assert float(model.model.embed_tokens.weight.std()) == pytest.approx(0.02, rel=0.05)
    assert float(model.model.norm.weight.min()) == 1.0
    with pytest.raises(ImportModelError, match="no decoder that is known here"):
        make_lm_case("nonsense", (1, 8), 1, tmp_path)


def test_plan_has_two_lengths_and_three_schemes() -> None:
    everything = Choice(threads=2)
    first, second = llm_plan(everything)
    assert (first.model, first.batch, first.length, second.length) == ("llama-110m", 1, 256, 512)
    assert first.schemes == SCHEMES
    assert "torch-compile-malloc" in first.engines
    (quick, _) = llm_plan(replace(everything, quick=True))
    assert "torch-compile-malloc" not in quick.engines
    blocks = llm_plan(replace(everything, schemes=("sparse", "sparse-1-1")))
    assert blocks[0].schemes == ("sparse", "sparse-1-1")


def test_command_refuses_boards() -> None:
    result = CliRunner().invoke(main, ["--device=rpi4", "--suite=llm"])
    assert result.exit_code == 1
    assert "--suite=llm runs on this machine, not on" in result.output


def test_error_names_a_missing_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "needs a C++ compiler" in str(why_missing(find_lm_engine("torch-compile-malloc")))
    assert why_missing(find_lm_engine("torch-eager")) is None


def test_a_missing_reference_is_named_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = {"peft": "peft is not installed"}
    monkeypatch.setattr(
        "pockengine.farm.cli.bench_llm.why_missing", lambda engine: missing.get(engine.name)
    )
    check_llm(["llama-110m"], ["full", "sparse"], [])
    for schemes in ((), ("lora",)):
        with pytest.raises(FarmError, match="compares lora with peft: peft is not installed; inst"):
            check_llm(["llama-110m"], schemes, [])
