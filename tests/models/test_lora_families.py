"""Current decoder families: preset `lora` finds their names, and ten steps match PEFT."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.integrations.neftune import activate_neftune

from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops.random import uniform
from pockengine.compiler.passes.forward.add_noise import STREAM, EmbeddingNoise
from pockengine.compiler.sparse.lora import lora
from pockengine.compiler.storage import Storage
from pockengine.models.causal_lm import CausalLM, open_causal_lm
from pockengine.models.experts import separate
from pockengine.models.hugging_face import is_decoder
from pockengine.tests.models.families import FURTHER
from pockengine.tests.models.lora_steps import LENGTH, STEPS, batches, of_peft, ours
from pockengine.tests.zoo.zoo_language import EXPERTS, GROUPED, SMALL, build

LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
WINDOWED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
PER_LAYER = {
    "vocab_size_per_layer_input": SMALL["vocab_size"],
    "hidden_size_per_layer_input": 8,
    "global_head_dim": 8,
    "num_kv_shared_layers": 0,
}
CONV = {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen3_5ForCausalLM": ("Qwen3_5Text", LINEAR),
    "Gemma4ForCausalLM": ("Gemma4Text", {**WINDOWED, **PER_LAYER}),
    "Lfm2ForCausalLM": ("Lfm2", CONV),
    "SmolLM3ForCausalLM": ("SmolLM3", {"no_rope_layers": [1, 0]}),
    "Phi3ForCausalLM": ("Phi3", {"tie_word_embeddings": True, "partial_rotary_factor": 0.75}),
    "GptOssForCausalLM": ("GptOss", {**EXPERTS, **WINDOWED}),
    "Qwen3MoeForCausalLM": ("Qwen3Moe", EXPERTS),
    "Qwen3NextForCausalLM": ("Qwen3Next", {**LINEAR, **EXPERTS}),
    "Lfm2MoeForCausalLM": ("Lfm2Moe", {**CONV, **EXPERTS, "num_dense_layers": 1}),
    "MixtralForCausalLM": ("Mixtral", EXPERTS),
}


NIGHTLY = ("Qwen3NextForCausalLM", "Lfm2MoeForCausalLM", "MixtralForCausalLM")
"""Combinations of features that other families have separately."""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.nightly] if kind in NIGHTLY else [])
        for kind in FAMILIES
    ],
)
def test_ten_steps_match_peft(kind: str, tmp_path: Path) -> None:
    name, settings = FAMILIES[kind]
    torch.manual_seed(0)
    module = build(name, kind, **{**SMALL, **GROUPED, **settings})
    module.save_pretrained(tmp_path)
    tuned = ours(tmp_path)
    layers = {one.weight.split(".")[2] for one in tuned.adapters}
    assert layers == {"0", "1"}
    assert tuned.losses == pytest.approx(of_peft(module, tuned), rel=1e-4)
    assert len(set(tuned.losses)) == STEPS


VISION: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Qwen3_5": (
        LINEAR,
        {
            "depth": 1,
            "num_heads": 2,
            "out_hidden_size": 32,
            "num_position_embeddings": 16,
        },
    ),
    "Gemma3": (
        WINDOWED,
        {"num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
    ),
}


@pytest.mark.parametrize("name", VISION)
def test_text_model_of_a_vision_language_model_opens(name: str, tmp_path: Path) -> None:
    text, vision = VISION[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        text_config={**SMALL, **GROUPED, **text},
        vision_config={"hidden_size": 16, "intermediate_size": 16, **vision},
    )
    whole = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    whole.save_pretrained(tmp_path)
    batch = batches()[0]

    assert is_decoder(tmp_path)
    opened = open_causal_lm(tmp_path)
    graph = opened.graph(2, LENGTH)
    feed = {value.name: batch[value.name].numpy() for value in graph.inputs}
    loss = run(graph, feed, {one: param.data for one, param in graph.params.items()})["loss"]
    with torch.no_grad():
        expected = whole(input_ids=batch["input_ids"], labels=batch["labels"]).loss
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    assert all("language_model" in one or "lm_head" in one for one in opened.names(graph).values())


@pytest.mark.parametrize("kind", ["Qwen3MoeForCausalLM", "MixtralForCausalLM"])
def test_experts_round_trip(kind: str, tmp_path: Path) -> None:
    name, settings = FAMILIES[kind]
    module = build(name, kind, **{**SMALL, **GROUPED, **settings})
    module.save_pretrained(tmp_path)
    opened = open_causal_lm(tmp_path)
    stored, names = opened.file_weights(), opened.names(opened.graph(1, 4))
    reads = []

    def load(param: str) -> np.ndarray:
        reads.append(param)
        return module.get_parameter(param).detach().numpy()

    changed: dict[str, Contents] = {
        names[param]: Lazy(TensorType(F32, tuple(tensor.shape)), partial(load, param), param)
        for param, tensor in module.named_parameters()
        if ".experts." in param
    }
    back = separate(changed, stored)
    assert len(back) == 2 * 4 * 3  # layers, experts, products
    for file_name in sorted(back):
        np.testing.assert_array_equal(back[file_name].read(), stored[file_name].read())
    assert len(reads) == len(set(reads))


@pytest.mark.parametrize(
    ("kind", "storage"),
    [("LlamaForCausalLM", "f32"), ("LlamaForCausalLM", "bf16"), ("Gemma4ForCausalLM", "f32")],
)
def test_noise_matches_transformers(
    kind: str, storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, settings = {**FAMILIES, "LlamaForCausalLM": ("Llama", {})}[kind]
    module = build(name, kind, **{**SMALL, **GROUPED, **settings, "vocab_size": 128})
    module.bfloat16().float()  # numbers that the storage type represents exactly
    module.save_pretrained(tmp_path)
    noise = EmbeddingNoise("model.embed_tokens.weight", alpha=5.0)
    scheme = lora(4, 8, ["*.q_proj.weight"])
    tuned = ours(tmp_path, scheme, Storage(storage), noise)
    table = module.get_input_embeddings()
    activate_neftune(module, noise.alpha)

    def drawn(x: torch.Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> torch.Tensor:
        numbers = torch.from_numpy(uniform(0, STREAM, x.numel())).reshape(x.shape)
        return x.copy_(low + (high - low) * numbers)

    monkeypatch.setattr(torch.Tensor, "uniform_", drawn)
    expected = of_peft(module, tuned)
    assert tuned.losses == pytest.approx(expected, rel=1e-4)
    plain = ours(tmp_path, scheme, Storage(storage))
    assert max(abs(a - b) for a, b in zip(tuned.losses, plain.losses, strict=True)) > 1e-4
    assert table.neftune_noise_alpha == noise.alpha


NAMED = {name.removesuffix("ForCausalLM"): value for name, value in FAMILIES.items()}
EVERY: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, settings) for name, settings in FURTHER.items()},
    **{name: (kind, {**GROUPED, **settings}) for name, (kind, settings) in NAMED.items()},
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", EVERY)
def test_families_that_mix_texts_are_known(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    kind, settings = EVERY[name]
    model = build(kind, f"{name}ForCausalLM", **{**SMALL, **settings}).eval()
    positions = torch.cat([torch.arange(5), torch.arange(7)])[None]
    ids = torch.randint(5, 60, (2, 12))
    ids[1, 5:] = ids[0, 5:]
    with torch.no_grad():
        logits = [
            model(input_ids=row[None], position_ids=positions, use_cache=False).logits[0, 5:]
            for row in ids
        ]
    error = (logits[1] - logits[0]).abs().max() / logits[0].abs().max()
    assert CausalLM(tmp_path, model, {}).separates_texts == (float(error) < 1e-5)
