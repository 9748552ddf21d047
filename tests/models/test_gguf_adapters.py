"""LoRA adapters as GGUF: added as by llama.cpp, they give the merged model's tensors."""

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.sparse.lora import Adapter
from pockengine.models.gguf_adapters import obstacle, write_gguf_adapters
from pockengine.models.gguf_names import gguf_tensors, write_gguf_tensors
from pockengine.tests.models.gguf_files import write_model

RANK = 3
LINEAR_ATTENTION = tuple(
    f"linear_attn.{name}"
    for name in ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj")
)
MODULES = {
    "llama": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.down_proj"),
    "gemma3_text": ("self_attn.q_proj", "mlp.gate_proj"),
    "phi3": ("self_attn.qkv_proj", "mlp.gate_up_proj"),
    "gpt2": ("attn.c_attn", "mlp.c_proj"),
    "granite": ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj"),
    "lfm2": ("feed_forward.w1", "feed_forward.w2"),
    "gpt_oss": ("self_attn.q_proj", "self_attn.o_proj"),
    "bloom": ("self_attention.query_key_value", "mlp.dense_h_to_4h"),
    "falcon": ("self_attention.query_key_value", "mlp.dense_h_to_4h"),
    "mixtral": ("self_attn.q_proj", "self_attn.k_proj"),
    "qwen3_5_text": LINEAR_ATTENTION,
    "qwen3_next": ("linear_attn.in_proj_ba", "linear_attn.out_proj"),
}
ARCHITECTURES = {
    "gemma3_text": "gemma3",
    "gpt_oss": "gpt-oss",
    "mixtral": "llama",
    "qwen3_5_text": "qwen35",
    "qwen3_next": "qwen3next",
}


@pytest.mark.parametrize("kind", MODULES)
def test_adapters_added_to_the_model_give_merged_tensors(kind: str, tmp_path: Path) -> None:
    config = write_model(kind, tmp_path).config
    source, path, tuned = (tmp_path / f"{name}.gguf" for name in ("tiny", "adapter", "tuned"))
    stored, rng = gguf_tensors(source, config), np.random.default_rng(0)
    blocks = "transformer.h" if kind in ("bloom", "falcon", "gpt2") else "model.layers"
    adapters: list[Adapter] = []
    values: dict[str, np.ndarray] = {}
    merged: dict[str, Contents] = {}
    for place, module in enumerate(MODULES[kind]):
        block = 0 if module.startswith("linear_attn") else place % 2
        adapter = Adapter(f"{blocks}.{block}.{module}.weight", RANK, alpha=6.0 + place)
        weight = stored[adapter.weight].read()
        outputs, inputs = weight.shape[::-1] if kind == "gpt2" else weight.shape
        a = rng.standard_normal((inputs, RANK)).astype(np.float32)
        b = rng.standard_normal((RANK, outputs)).astype(np.float32)
        values |= {adapter.a: a, adapter.b: b}
        product = np.float32(adapter.scale) * (a @ b)
        merged[adapter.weight] = InMemory(weight + (product if kind == "gpt2" else product.T))
        adapters.append(adapter)

    write_gguf_adapters(path, adapters, values, config)

    write_gguf_tensors(source, config, merged, tuned)
    before, after = (tensors(one) for one in (source, tuned))
    reader = gguf.GGUFReader(path)
    alpha = reader.fields["adapter.lora.alpha"].contents()
    factors = tensors(path)
    changed = {name.rpartition(".")[0] for name in factors}
    assert len(changed) == len(adapters)
    for name in changed:
        first, second = factors[f"{name}.lora_a"], factors[f"{name}.lora_b"]
        added = before[name] + alpha / len(first) * (second @ first)
        np.testing.assert_allclose(added, after[name], atol=1e-5)
    kinds = {"general.type": "adapter", "adapter.type": "lora"}
    kinds["general.architecture"] = ARCHITECTURES.get(kind, kind)
    assert {key: reader.fields[key].contents() for key in kinds} == kinds


def tensors(path: Path) -> dict[str, np.ndarray]:
    """Return a file's tensors as the package gguf reads them, dimensions slowest first."""
    return {
        tensor.name: np.array(tensor.data).reshape(tuple(reversed(tensor.shape)))
        for tensor in gguf.GGUFReader(path).tensors
    }


def test_obstacles_name_the_weight_and_the_alternative(tmp_path: Path) -> None:
    config = write_model("llama", tmp_path).config
    query = Adapter("model.layers.0.self_attn.q_proj.weight", RANK, 6.0)
    assert obstacle(config, [query]) is None
    for name in ("model.extra.weight", "model.embed_tokens.weight"):
        message = obstacle(config, [query, Adapter(name, RANK, 6.0)])
        assert message == f"llama.cpp reads no adapter of {name}; give llama.cpp the merged model"
    lfm2 = write_model("lfm2", tmp_path).config
    convolution = Adapter("model.layers.0.conv.conv.weight", RANK, 6.0)
    assert f"no adapter of {convolution.weight};" in str(obstacle(lfm2, [convolution]))
    qwen3_next = write_model("qwen3_next", tmp_path).config
    joined = Adapter("model.layers.0.linear_attn.in_proj_qkvz.weight", RANK, 6.0)
    assert f"no adapter of {joined.weight};" in str(obstacle(qwen3_next, [joined]))
    message = str(obstacle(config, [replace(query, dora=True)]))
    assert f"{query.weight} has a magnitude (DoRA), and llama.cpp's adapters have" in message
    assert message.endswith("the merged model, or train with the scheme lora")
    config.model_type = "mamba"
    assert "starcoder2, not for mamba; give" in str(obstacle(config, [query]))
