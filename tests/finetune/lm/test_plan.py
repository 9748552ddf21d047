"""Plans from shapes alone match the compiled artifact's memory."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pockengine.api import compile
from pockengine.cli.plan_lm import plan_lm
from pockengine.compiler.optim import AdamW
from pockengine.compiler.storage import Storage
from pockengine.errors import DeviceError, ImportModelError
from pockengine.finetune.lm.methods import SUPERVISED
from pockengine.finetune.lm.next_token import predict_one_token
from pockengine.finetune.lm.plan import ORIN, LmMemory, Shape, Unplanned, plans
from pockengine.models.causal_lm import open_causal_lm
from pockengine.models.decoders import shapes_of
from pockengine.options import CompileOptions
from pockengine.tests.finetune.lm.decoders import llama, save

SIZES = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 320}
SMALL = Storage(weights="int4")


def planned(folder: Path, scheme: str, storage: Storage) -> LmMemory:
    options = CompileOptions(scheme=scheme, optimizer=AdamW(), storage=storage)
    (plan,) = plans(shapes_of(str(folder)), Shape(2, 16), [options])
    assert isinstance(plan, LmMemory)
    return plan


def test_a_budget_that_is_too_small_leaves_other_plans(tmp_path: Path) -> None:
    model = shapes_of(str(save(tmp_path, llama(**SIZES, num_hidden_layers=1))))
    options = [CompileOptions(memory_budget=budget) for budget in (1000, None)]
    failed, plan = plans(model, Shape(2, 16), options)
    assert isinstance(failed, Unplanned)
    assert "not 1000" in failed.why
    assert isinstance(plan, LmMemory)


@pytest.mark.parametrize(
    ("scheme", "storage"),
    [("lora", SMALL), ("sparse", Storage()), ("full", Storage(trained="bf16", states="bf16"))],
)
def test_plan_matches_the_memory_of_the_artifact(
    scheme: str, storage: Storage, tmp_path: Path
) -> None:
    folder = save(tmp_path, llama(**SIZES))
    graph = open_causal_lm(folder).graph(2, 16)
    predict_one_token(graph, 2, 16)
    options = CompileOptions(
        scheme=scheme, optimizer=AdamW(), storage=storage, outputs=SUPERVISED.outputs
    )
    compiled = compile(graph, None, options=options).artifact
    assert set(compiled.entries["train"].outputs) == {"loss"}  # the head's product runs once
    for weights in folder.glob("*.safetensors"):
        weights.unlink()

    plan = planned(folder, scheme, storage)

    written = plan.trained_bytes + plan.states_bytes
    assert (written, plan.frozen_bytes) == (compiled.params_bytes, compiled.frozen_bytes)
    assert plan.arena_bytes == compiled.arena_bytes
    small = 1 if storage.trained == "f32" else 2
    assert plan.states_bytes >= 2 * 4 // small * plan.trained


def test_command_plans_each_scheme_with_each_weight_storage(tmp_path: Path) -> None:
    folder = save(tmp_path, llama(**SIZES))
    options = ["--batch=2", "--max-length=16", "--optimizer=sgd", "--json"]
    result = CliRunner().invoke(plan_lm, [str(folder), *options], catch_exceptions=False)
    found = json.loads(result.stdout)["plans"]
    assert [(plan["scheme"], plan["frozen_weights"]) for plan in found] == [
        ("full", "f32"),
        *((scheme, form) for scheme in ("lora", "sparse") for form in ("f32", "int4")),
    ]
    whole, *_, small = found
    assert (whole["states_bytes"], whole["frozen_bytes"] < 1000) == (0, True)
    assert small["total_bytes"] < whole["total_bytes"]
    lora = found[1]
    assert 0 < lora["orin_ms"] < whole["orin_ms"]
    assert whole["orin_ms"] > whole["trained_bytes"] / ORIN.gbytes / 1e6
    shown = CliRunner().invoke(plan_lm, [str(folder), *options[:-1]], catch_exceptions=False)
    assert "MB (10^6 bytes), planned" in " ".join(shown.stdout.split())
    assert f"{whole['total_bytes'] / 1e6:.2f}" in shown.stdout
    with pytest.raises(ImportModelError, match=r"--max-length \d+ is beyond the \d+ tokens"):
        CliRunner().invoke(plan_lm, [str(folder), "--max-length=100000"], catch_exceptions=False)


def test_layers_save_the_results_of_products(tmp_path: Path) -> None:
    """Saved per token: gate, up, two residuals, q, k, v, and attention's result with its sums.

    Norms and activations are recomputed, and no gradient is stored until the end.
    """
    hidden, inner, tokens, heads = 128, 512, 64, 4
    shape = {"hidden_size": hidden, "intermediate_size": inner, "num_key_value_heads": heads}
    arenas = []
    for layers in (2, 6):
        model = llama(**shape, num_hidden_layers=layers, tie_word_embeddings=True)
        folder = save(tmp_path / str(layers), model)
        requested = [CompileOptions(optimizer=AdamW())]
        (plan,) = plans(shapes_of(str(folder)), Shape(1, tokens), requested, "h100")
        assert isinstance(plan, LmMemory)
        arenas.append(plan.arena_bytes)
    saved = 4 * tokens * (2 * inner + (2 + 4) * hidden + 2 * heads)
    small = 4 * 2 * tokens + 1024  # the scales of two norms, and alignment
    assert abs((arenas[1] - arenas[0]) // 4 - saved) <= small


@pytest.mark.parametrize("backend", ["c", "cuda"])
def test_causal_attention_saves_no_scores(backend: str, tmp_path: Path) -> None:
    """Twice the tokens take twice the arena, not four times, as attention scores would."""
    folder = save(tmp_path, llama(**SIZES, max_position_embeddings=512))
    arenas = {}
    for length in (256, 512):
        options = [f"--max-length={length}", "--scheme=full", f"--backend={backend}"]
        result = CliRunner().invoke(plan_lm, [str(folder), *options, "--device=h100", "--json"])
        facts = json.loads(result.stdout)
        assert (facts["device"], facts["backend"]) == ("h100", backend)
        arenas[length] = facts["plans"][0]["arena_bytes"]
    assert arenas[512] < 2 * arenas[256] + 4 * 4 * 256 * 256


def test_unsupported_backends_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, llama(**SIZES))
    result = CliRunner().invoke(plan_lm, [str(folder), "--device=rpi4", "--backend=cuda"])
    assert isinstance(result.exception, DeviceError)
    assert "device rpi4 takes no backend 'cuda'" in str(result.exception)


def test_error_for_an_unknown_decoder_lists_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match=r"llama2-7b, .*no folder with config"):
        shapes_of(str(tmp_path))


def test_8_bit_states_need_less_than_half_the_memory(tmp_path: Path) -> None:
    folder = save(tmp_path, llama(**SIZES))
    plain = planned(folder, "full", Storage())
    small = planned(folder, "full", Storage(states="8bit"))
    assert small.states_bytes < 0.5 * plain.states_bytes
