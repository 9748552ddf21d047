"""Every decoder family with GGUF support: PyTorch's loss, and export back to GGUF."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.evaluate import run
from pockengine.models.causal_lm import open_causal_lm
from pockengine.models.gguf import read_gguf
from pockengine.models.gguf_families import ARCHITECTURES, KNOWN
from pockengine.models.gguf_forms import FORMS
from pockengine.models.gguf_names import gguf_tensors, write_gguf_tensors
from pockengine.tests.zoo.zoo_language import EXPERTS, GPT2, GROUPED, SMALL, build

LENGTH = 8
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("Llama", "LlamaForCausalLM", GROUPED),
    "mistral": ("Mistral", "MistralForCausalLM", GROUPED),
    "qwen2": ("Qwen2", "Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3", "Qwen3ForCausalLM", GROUPED),
    "gemma": ("Gemma", "GemmaForCausalLM", GROUPED),
    "gemma2": ("Gemma2", "Gemma2ForCausalLM", GROUPED),
    "gemma3_text": ("Gemma3Text", "Gemma3ForCausalLM", GROUPED),
    "phi3": ("Phi3", "Phi3ForCausalLM", GROUPED),
    "smollm3": ("SmolLM3", "SmolLM3ForCausalLM", {**GROUPED, "no_rope_layers": [1, 0]}),
    "gpt2": ("GPT2", "GPT2LMHeadModel", GPT2),
    "phi": ("Phi", "PhiForCausalLM", {}),
    "granite": ("Granite", "GraniteForCausalLM", {**GROUPED, "embedding_multiplier": 3.0}),
    "lfm2": (
        "Lfm2",
        "Lfm2ForCausalLM",
        {
            **GROUPED,
            "layer_types": ["conv", "full_attention"],
            "block_auto_adjust_ff_dim": False,
        },
    ),
    "qwen3_moe": ("Qwen3Moe", "Qwen3MoeForCausalLM", {**GROUPED, **EXPERTS}),
    "gpt_oss": (
        "GptOss",
        "GptOssForCausalLM",
        {
            **GROUPED,
            **EXPERTS,
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 4,
        },
    ),
}
LAYERS = (
    (r"self_attn\.([qkv])_proj", r"attn_\1"),
    (r"self_attn\.o_proj", "attn_output"),
    (r"self_attn\.([qk])_norm", r"attn_\1_norm"),
    (r"mlp\.(gate|up|down)_proj", r"ffn_\1"),
    (r"input_layernorm", "attn_norm"),
)
WHOLE = (
    (r"model\.embed_tokens", "token_embd"),
    (r"model\.norm", "output_norm"),
    (r"lm_head", "output"),
    (r"model\.layers", "blk"),
)
PLAIN = ((r"post_attention_layernorm", "ffn_norm"), *LAYERS, *WHOLE)
GEMMA2 = (
    (r"pre_feedforward_layernorm", "ffn_norm"),
    (r"post_attention_layernorm", "post_attention_norm"),
    (r"post_feedforward_layernorm", "post_ffw_norm"),
    *LAYERS,
    *WHOLE,
)
EXPERT_LAYERS = ((r"mlp\.experts\.(gate|up|down)_proj", r"ffn_\1_exps"),)
THEIRS = {
    "phi": (
        (r"self_attn\.dense", "attn_output"),
        (r"mlp\.fc1", "ffn_up"),
        (r"mlp\.fc2", "ffn_down"),
        (r"model\.final_layernorm", "output_norm"),
        *PLAIN,
    ),
    "lfm2": (
        (r"model\.embedding_norm", "token_embd_norm"),
        (r"operator_norm", "attn_norm"),
        (r"self_attn\.out_proj", "attn_output"),
        (r"self_attn\.([qk])_layernorm", r"attn_\1_norm"),
        (r"conv\.(conv|in_proj|out_proj)", r"shortconv.\1"),
        (r"feed_forward\.w1", "ffn_gate"),
        (r"feed_forward\.w3", "ffn_up"),
        (r"feed_forward\.w2", "ffn_down"),
        *PLAIN,
    ),
    "qwen3_moe": (*EXPERT_LAYERS, (r"mlp\.gate", "ffn_gate_inp"), *PLAIN),
    "gpt_oss": (
        *EXPERT_LAYERS,
        (r"mlp\.router", "ffn_gate_inp"),
        (r"self_attn\.sinks", "attn_sinks"),
        (r"post_attention_layernorm", "post_attention_norm"),
        *LAYERS,
        *WHOLE,
    ),
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA2,
    "phi3": ((r"self_attn\.qkv_proj", "attn_qkv"), (r"mlp\.gate_up_proj", "ffn_up"), *PLAIN),
    "gpt2": (
        (r"transformer\.wte", "token_embd"),
        (r"transformer\.wpe", "position_embd"),
        (r"transformer\.ln_f", "output_norm"),
        (r"transformer\.h", "blk"),
        (r"attn\.c_attn", "attn_qkv"),
        (r"attn\.c_proj", "attn_output"),
        (r"mlp\.c_fc", "ffn_up"),
        (r"mlp\.c_proj", "ffn_down"),
        (r"ln_1", "attn_norm"),
        (r"ln_2", "ffn_norm"),
        (r"lm_head", "output"),
    ),
}
"""Patterns -> llama.cpp's weight names, by family; other families use `PLAIN`."""


def llama_cpp_name(kind: str, name: str) -> str:
    for pattern, theirs in THEIRS.get(kind, PLAIN):
        name = re.sub(rf"(?<![^.]){pattern}\.", f"{theirs}.", name)
    return name


def to_llama_cpp(kind: str, name: str, array: np.ndarray, heads: tuple[int, int]) -> np.ndarray:
    """Return a weight in the converter's layout."""
    if kind in ("llama", "mistral", "smollm3", "granite") and re.search(r"attn_[qk]\.", name):
        count = heads[name.split(".")[-2] == "attn_k"]
        halves = array.reshape(count, 2, -1, *array.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
    if kind.startswith("gemma") and name.endswith("norm.weight"):
        return array + 1
    if kind == "gpt2" and re.search(r"(attn_qkv|attn_output|ffn_up|ffn_down)\.weight", name):
        return np.ascontiguousarray(array.T)
    if name.endswith("shortconv.conv.weight"):
        return array[:, 0]
    return array


def exported(kind: str, module: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield weights as the converter does before it renames them: experts in three tensors."""
    for name, tensor in module.state_dict().items():
        array, end = tensor.numpy(), ".bias" if name.endswith("_bias") else ".weight"
        place, _, part = name.removesuffix("_bias").rpartition(".")
        if not place.endswith("experts"):
            yield name if name.endswith((".weight", ".bias")) else f"{name}.weight", array
            continue
        if kind == "gpt_oss" and end == ".weight":
            array = array.swapaxes(1, 2)
        if part == "down_proj":
            yield f"{place}.down_proj{end}", array
            continue
        half = array.shape[1] // 2
        alternate = (array[:, ::2], array[:, 1::2])
        gate, up = alternate if kind == "gpt_oss" else (array[:, :half], array[:, half:])
        yield f"{place}.gate_proj{end}", gate
        yield f"{place}.up_proj{end}", up


def write_f32(path: Path, kind: str, module: Any) -> None:
    """Write a module's weights in llama.cpp's format, including a tied head."""
    config, table, data = module.config, b"", b""
    kv = getattr(config, "num_key_value_heads", config.num_attention_heads)
    weights = list(exported(kind, module))
    for ours, exported_array in weights:
        name = llama_cpp_name(kind, ours)
        array = to_llama_cpp(kind, name, exported_array, (config.num_attention_heads, kv))
        table += struct.pack("<Q", len(name)) + name.encode()
        table += struct.pack(f"<I{array.ndim}Q", array.ndim, *reversed(array.shape))
        table += struct.pack("<IQ", 0, len(data))
        data += array.tobytes() + bytes(-array.nbytes % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(weights), 0) + table
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def write_model(kind: str, folder: Path) -> Any:
    """Write a folder of a tiny model with one GGUF file; return the model."""
    name, class_name, settings = FAMILIES[kind]
    torch.manual_seed(0)
    module = build(name, class_name, **{**SMALL, **settings}).eval()
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.05 * torch.randn_like(weight))  # otherwise norms and biases start equal
    module.config.architectures = [class_name]
    module.config.save_pretrained(folder)
    write_f32(folder / "tiny.gguf", kind, module)
    return module


def test_every_supported_family_is_tested() -> None:
    assert set(FAMILIES) == set(KNOWN)


@pytest.mark.parametrize("kind", FAMILIES)
def test_names_are_those_of_llama_cpp(kind: str, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    architecture = ARCHITECTURES.get(kind, kind)
    number = next(one for one, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    patterns = [gguf.TENSOR_NAMES[tensor] for tensor in gguf.MODEL_TENSORS[number]]
    known = {pattern.format(bid=block) for pattern in patterns for block in (0, 1)}
    write_model(kind, tmp_path)
    names = read_gguf(tmp_path / "tiny.gguf").entries
    assert {name.rpartition(".")[0] for name in names} <= known | {"output"}  # a tied head


@pytest.mark.parametrize("kind", FAMILIES)
def test_loss_matches_pytorch(kind: str, tmp_path: Path) -> None:
    module = write_model(kind, tmp_path)
    assert module.config.model_type == kind
    ids = torch.randint(5, 60, (2, LENGTH))
    positions = torch.arange(LENGTH).repeat(2, 1)
    batch = {"input_ids": ids, "labels": ids, "position_ids": positions}
    with torch.no_grad():
        expected = float(module(**batch, use_cache=False).loss)

    graph = open_causal_lm(tmp_path).graph(2, LENGTH)

    feed = {value.name: batch[value.name].numpy() for value in graph.inputs}
    params = {name: param.data for name, param in graph.params.items()}
    assert float(run(graph, feed, params)["loss"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", FAMILIES)
def test_weights_round_trip(kind: str, tmp_path: Path) -> None:
    module = write_model(kind, tmp_path)
    source, back = tmp_path / "tiny.gguf", tmp_path / "back.gguf"
    found = gguf_tensors(source, module.config)
    changed: dict[str, Contents] = {n: InMemory(held.read() + 1) for n, held in found.items()}
    write_gguf_tensors(source, module.config, changed, back)

    before, after = read_gguf(source), read_gguf(back)
    assert all(after.form(name) is FORMS[0] for name in before.entries)
    for name in before.entries:  # a tied head too
        expected = before.contents(name).read() + 1
        assert np.allclose(after.contents(name).read(), expected, atol=1e-6), name
