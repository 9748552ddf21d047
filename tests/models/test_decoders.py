"""Decoders from folders train as PyTorch does: ten steps on packed texts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.contents import Contents, ShapeOnly
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.types import DType, TensorType, f32
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.errors import GraphError, ImportModelError
from pockengine.models.causal_lm import open_causal_lm
from pockengine.models.experts import stacked
from pockengine.tests.models.families import FURTHER, MIXTURE
from pockengine.tests.zoo.zoo_language import GPT2, GROUPED, SMALL, build

STEPS, RATE, LENGTH = 10, 0.1, 12
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("Llama", GROUPED),
    "MistralForCausalLM": ("Mistral", {**GROUPED, "sliding_window": 4}),
    "Qwen2ForCausalLM": ("Qwen2", {**GROUPED, "rope_parameters": DYNAMIC}),
    "Qwen3ForCausalLM": ("Qwen3", GROUPED),
    "GemmaForCausalLM": ("Gemma", GROUPED),
    "Gemma2ForCausalLM": ("Gemma2", GROUPED),
    "Gemma3ForCausalLM": ("Gemma3Text", GROUPED),
    "PhiForCausalLM": ("Phi", {}),
    "Phi3ForCausalLM": ("Phi3", GROUPED),
    "GraniteForCausalLM": (
        "Granite",
        {**GROUPED, "embedding_multiplier": 3.0, "residual_multiplier": 0.5, "logits_scaling": 2.0},
    ),
    "GPT2LMHeadModel": ("GPT2", GPT2),
    # Families whose files have names of their own.
    "GPTNeoXForCausalLM": ("GPTNeoX", {}),
    "PhimoeForCausalLM": ("Phimoe", {**GROUPED, **MIXTURE}),
    "GraniteMoeForCausalLM": ("GraniteMoe", {**GROUPED, **MIXTURE}),
    "Ernie4_5_MoeForCausalLM": (
        "Ernie4_5_Moe",
        {**GROUPED, "moe_num_experts": 2, "moe_k": 1, "moe_intermediate_size": 16},
    ),
}


def batches() -> list[dict[str, torch.Tensor]]:
    """Return batches of a row of two texts and a row of one; first tokens have no label."""
    starts = torch.cat([torch.arange(5), torch.arange(LENGTH - 5)])
    positions = torch.stack([starts, torch.arange(LENGTH)])
    torch.manual_seed(1)
    ids = [torch.randint(5, 60, (2, LENGTH)) for _ in range(STEPS)]
    return [
        {"input_ids": x, "labels": x.masked_fill(positions == 0, -100), "position_ids": positions}
        for x in ids
    ]


def losses_of_pytorch(module: Any) -> list[float]:
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    losses = []
    for batch in batches():
        optimizer.zero_grad()
        loss = module(**batch, use_cache=False).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def our_losses(folder: Path) -> list[float]:
    graph = open_causal_lm(folder).graph(2, LENGTH)
    step = compile_program(graph, Training(optimizer=Sgd())).entries["train"].graph
    params = {name: param.data.copy() for name, param in step.params.items()}
    controls = {"lr": np.asarray(RATE, np.float32), "seed": np.asarray(0, np.int32)}
    expected = {value.name for value in step.inputs}
    losses = []
    for batch in batches():
        feed = {**{name: tensor.numpy() for name, tensor in batch.items()}, **controls}
        inputs = {name: array for name, array in feed.items() if name in expected}
        losses.append(float(run(step, inputs, params)["loss"]))
    return losses


@pytest.mark.nightly
@pytest.mark.parametrize("name", FURTHER)
def test_ten_steps_of_further_families_match_pytorch(name: str, tmp_path: Path) -> None:
    check_ten_steps(name, f"{name}ForCausalLM", FURTHER[name], tmp_path)


@pytest.mark.parametrize("kind", DECODERS)
def test_ten_steps_match_pytorch(kind: str, tmp_path: Path) -> None:
    check_ten_steps(DECODERS[kind][0], kind, DECODERS[kind][1], tmp_path)


def check_ten_steps(name: str, kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = build(name, kind, **{**SMALL, **settings})
    module.save_pretrained(tmp_path, max_shard_size="20KB")
    ours = our_losses(tmp_path)
    assert ours == pytest.approx(losses_of_pytorch(module), rel=1e-4)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert len(set(ours)) == STEPS


def test_file_without_a_head_opens(tmp_path: Path) -> None:
    torch.manual_seed(0)
    whole = build("GPT2", "GPT2LMHeadModel", **{**SMALL, **GPT2})
    whole.transformer.save_pretrained(tmp_path)
    whole.config.architectures = ["GPT2LMHeadModel"]
    whole.config.save_pretrained(tmp_path)
    graph = open_causal_lm(tmp_path).graph(1, 8)
    stored = graph.params["transformer.h.0.attn.c_attn.weight"].contents.read()
    assert np.array_equal(stored, whole.transformer.h[0].attn.c_attn.weight.detach().numpy())


@pytest.mark.parametrize("held", ["another head", "the head alone"])
def test_heads_are_tied_as_by_transformers(held: str, tmp_path: Path) -> None:
    """config.json says that the head is the embedding; the file may say otherwise."""
    module = build("Llama", "LlamaForCausalLM", **GROUPED, tie_word_embeddings=True)
    module.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    embedding = "model.embed_tokens.weight"
    weights["lm_head.weight"] = torch.randn_like(weights[embedding])
    if held == "the head alone":
        del weights[embedding]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    expected = type(module).from_pretrained(tmp_path)
    opened = open_causal_lm(tmp_path)
    names, found = opened.names(opened.graph(1, LENGTH)), opened.file_weights()
    read = {name: found[of_file].read() for name, of_file in names.items()}
    assert set(read) == set(dict(expected.named_parameters()))
    for name, parameter in expected.named_parameters():
        np.testing.assert_array_equal(read[name], parameter.detach().numpy())


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"hidden_size": 0}, r".* the shape \[.*\b0\b"),
        ({"rms_norm_eps": None}, r".*'rms_norm_eps': .*NoneType"),
    ],
)
def test_faulty_configurations_are_refused(
    change: dict[str, Any], fact: str, tmp_path: Path
) -> None:
    build("Llama", "LlamaForCausalLM", **GROUPED).config.save_pretrained(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    about |= {**change, "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(about))
    with pytest.raises(ImportModelError, match=f"as config.json has it: {fact}"):
        open_causal_lm(tmp_path)


@pytest.mark.parametrize(
    ("part", "type_"),
    [
        *(("2.w1", f32(100, 64)), ("2.w1", f32(128, 32)), ("0.w1", f32(128)), ("0.w2", f32(64))),
        *(("1.w3", f32()), ("1.w1", TensorType(DType.I8, (128, 64)))),
    ],
)
def test_error_names_experts_of_other_types(part: str, type_: TensorType) -> None:
    place = "model.layers.0.block_sparse_moe.experts"
    shapes = {"w1": (128, 64), "w2": (64, 128), "w3": (128, 64)}
    weights: dict[str, Contents] = {
        f"{place}.{expert}.{name}.weight": ShapeOnly(f32(*size))
        for expert in range(3)
        for name, size in shapes.items()
    }
    assert set(stacked(weights)) == {f"{place}.gate_up_proj", f"{place}.down_proj"}
    weights[f"{place}.{part}.weight"] = ShapeOnly(type_)
    with pytest.raises(GraphError, match=f"weights of expert {part[0]} are .* of the same shapes"):
        stacked(weights)
