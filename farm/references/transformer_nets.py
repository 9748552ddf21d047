"""The benchmark's transformers, once for every reference framework that has arrays and a gradient.

A framework gives `Arrays`, some operations; parameters are known by transformers' names.
Linear weights are [in, out], a convolution's HWIO, embeddings as they come. No dropout.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.errors import FarmError
from pockengine.models.registry import ModelName

Tensor = Any  # of whichever framework
MASKED = -1e30  # an attention score that softmax makes 0
BERT_LAYERS, BERT_HEADS, BERT_EPS = 12, 12, 1e-12
DISTILBERT_LAYERS, DISTILBERT_HEADS, DISTILBERT_EPS = 6, 12, 1e-12
VIT_LAYERS, VIT_HEADS, VIT_PATCH, VIT_EPS = 12, 3, 16, 1e-12
LLAMA_LAYERS, LLAMA_HEADS, LLAMA_EPS, LLAMA_THETA = 6, 6, 1e-5, 10000.0


@dataclass(frozen=True)
class Arrays:
    """Array operations of a framework beyond +, -, *, / and slices."""

    param: Callable[[str], Tensor]
    """A parameter by name."""
    constant: Callable[[np.ndarray], Tensor]
    take: Callable[[Tensor, Tensor], Tensor]
    """The rows of a table [V, C] for ids [N, L]."""
    matmul: Callable[[Tensor, Tensor], Tensor]
    """Multiplies the last two dimensions."""
    reshape: Callable[[Tensor, Sequence[int]], Tensor]
    transpose: Callable[[Tensor, Sequence[int]], Tensor]
    concat: Callable[[Sequence[Tensor], int], Tensor]
    softmax: Callable[[Tensor], Tensor]
    """Over the last dimension."""
    mean: Callable[[Tensor], Tensor]
    """Over the last dimension, which stays as 1."""
    rsqrt: Callable[[Tensor], Tensor]
    gelu: Callable[[Tensor], Tensor]
    """x Phi(x), exactly."""
    silu: Callable[[Tensor], Tensor]
    relu: Callable[[Tensor], Tensor]
    tanh: Callable[[Tensor], Tensor]


def transformer(a: Arrays, x: Tensor, model: ModelName) -> Tensor:
    """Apply a model to tokens [N, L] or pictures [N, H, W, 3] and return its logits.

    FarmError for a family that is not a transformer.
    """
    builder = FAMILIES.get(model.family)
    if builder is None:
        raise FarmError(f"{model.family} is no transformer of {', '.join(FAMILIES)}")
    return builder(a, x)


def _bert(a: Arrays, ids: Tensor) -> Tensor:
    """Return [N, classes] of the first token; all tokens are of the first segment."""
    name = "bert.embeddings"
    x = a.take(a.param(f"{name}.word_embeddings.weight"), ids)
    x = x + a.param(f"{name}.token_type_embeddings.weight")[0]
    x = x + a.param(f"{name}.position_embeddings.weight")[: ids.shape[1]]
    x = _layer_norm(a, x, f"{name}.LayerNorm", BERT_EPS)
    for index in range(BERT_LAYERS):
        name = f"bert.encoder.layer.{index}"
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        y = _attention(a, [_linear(a, x, part) for part in parts], BERT_HEADS)
        y = _linear(a, y, f"{name}.attention.output.dense")
        x = _layer_norm(a, x + y, f"{name}.attention.output.LayerNorm", BERT_EPS)
        y = _linear(a, a.gelu(_linear(a, x, f"{name}.intermediate.dense")), f"{name}.output.dense")
        x = _layer_norm(a, x + y, f"{name}.output.LayerNorm", BERT_EPS)
    return _linear(a, a.tanh(_linear(a, x[:, 0], "bert.pooler.dense")), "classifier")


def _distilbert(a: Arrays, ids: Tensor) -> Tensor:
    """Return [N, classes] of the first token."""
    name = "distilbert.embeddings"
    x = a.take(a.param(f"{name}.word_embeddings.weight"), ids)
    x = x + a.param(f"{name}.position_embeddings.weight")[: ids.shape[1]]
    x = _layer_norm(a, x, f"{name}.LayerNorm", DISTILBERT_EPS)
    for index in range(DISTILBERT_LAYERS):
        name = f"distilbert.transformer.layer.{index}"
        parts = [f"{name}.attention.{part}_lin" for part in "qkv"]
        y = _attention(a, [_linear(a, x, part) for part in parts], DISTILBERT_HEADS)
        y = _linear(a, y, f"{name}.attention.out_lin")
        x = _layer_norm(a, x + y, f"{name}.sa_layer_norm", DISTILBERT_EPS)
        y = _linear(a, a.gelu(_linear(a, x, f"{name}.ffn.lin1")), f"{name}.ffn.lin2")
        x = _layer_norm(a, x + y, f"{name}.output_layer_norm", DISTILBERT_EPS)
    return _linear(a, a.relu(_linear(a, x[:, 0], "pre_classifier")), "classifier")


def _vit(a: Arrays, pictures: Tensor) -> Tensor:
    """Return [N, classes] of the class token."""
    batch, size, _, channels = pictures.shape
    grid = size // VIT_PATCH
    x = a.reshape(pictures, (batch, grid, VIT_PATCH, grid, VIT_PATCH, channels))
    x = a.reshape(a.transpose(x, (0, 1, 3, 2, 4, 5)), (batch, grid * grid, -1))
    name = "vit.embeddings"
    weight = a.param(f"{name}.patch_embeddings.projection.weight")
    features = weight.shape[-1]
    x = a.matmul(x, a.reshape(weight, (-1, features)))
    x = x + a.param(f"{name}.patch_embeddings.projection.bias")
    first = a.constant(np.zeros((batch, 1, features), np.float32)) + a.param(f"{name}.cls_token")
    x = a.concat([first, x], 1) + a.param(f"{name}.position_embeddings")
    for index in range(VIT_LAYERS):
        name = f"vit.layers.{index}"
        y = _layer_norm(a, x, f"{name}.layernorm_before", VIT_EPS)
        parts = [_linear(a, y, f"{name}.attention.{part}_proj") for part in "qkv"]
        x = x + _linear(a, _attention(a, parts, VIT_HEADS), f"{name}.attention.o_proj")
        y = _layer_norm(a, x, f"{name}.layernorm_after", VIT_EPS)
        x = x + _linear(a, a.gelu(_linear(a, y, f"{name}.mlp.fc1")), f"{name}.mlp.fc2")
    return _linear(a, _layer_norm(a, x, "vit.layernorm", VIT_EPS)[:, 0], "classifier")


def _llama(a: Arrays, ids: Tensor) -> Tensor:
    """Return [N, L, vocabulary]; the table of embeddings is the last matrix too."""
    table = a.param("model.embed_tokens.weight")
    x = a.take(table, ids)
    turns = _rotations(a, ids.shape[1], x.shape[-1] // LLAMA_HEADS)
    for index in range(LLAMA_LAYERS):
        name = f"model.layers.{index}"
        y = _rms_norm(a, x, f"{name}.input_layernorm")
        parts = [a.matmul(y, a.param(f"{name}.self_attn.{part}_proj.weight")) for part in "qkv"]
        y = _attention(a, parts, LLAMA_HEADS, turns)
        x = x + a.matmul(y, a.param(f"{name}.self_attn.o_proj.weight"))
        y = _rms_norm(a, x, f"{name}.post_attention_layernorm")
        gate = a.silu(a.matmul(y, a.param(f"{name}.mlp.gate_proj.weight")))
        up = a.matmul(y, a.param(f"{name}.mlp.up_proj.weight"))
        x = x + a.matmul(gate * up, a.param(f"{name}.mlp.down_proj.weight"))
    return a.matmul(_rms_norm(a, x, "model.norm"), a.transpose(table, (1, 0)))


def _attention(
    a: Arrays, parts: Sequence[Tensor], heads: int, turns: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Attend with queries, keys and values [N, L, C]; with rotations, causally."""
    batch, length, width = parts[0].shape
    split = (batch, length, heads, width // heads)
    q, k, v = (a.transpose(a.reshape(part, split), (0, 2, 1, 3)) for part in parts)
    if turns is not None:
        q, k = _rotated(a, q, turns), _rotated(a, k, turns)
    scores = a.matmul(q, a.transpose(k, (0, 1, 3, 2))) * (1.0 / math.sqrt(width // heads))
    if turns is not None:
        future = np.triu(np.full((length, length), MASKED, np.float32), 1)
        scores = scores + a.constant(future)
    mixed = a.matmul(a.softmax(scores), v)
    return a.reshape(a.transpose(mixed, (0, 2, 1, 3)), (batch, length, width))


def _rotations(a: Arrays, length: int, width: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [L, width] of rotary embeddings, halves alike."""
    speeds = LLAMA_THETA ** (-np.arange(0, width, 2, dtype=np.float32) / width)
    angles = np.outer(np.arange(length, dtype=np.float32), np.tile(speeds, 2))
    return a.constant(np.cos(angles).astype(np.float32)), a.constant(
        np.sin(angles).astype(np.float32)
    )


def _rotated(a: Arrays, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the pairs (i, i + width / 2) of the last dimension."""
    half = x.shape[-1] // 2
    return x * turns[0] + a.concat([-x[..., half:], x[..., :half]], -1) * turns[1]


def _linear(a: Arrays, x: Tensor, name: str) -> Tensor:
    return a.matmul(x, a.param(f"{name}.weight")) + a.param(f"{name}.bias")


def _layer_norm(a: Arrays, x: Tensor, name: str, eps: float) -> Tensor:
    centered = x - a.mean(x)
    normal = centered * a.rsqrt(a.mean(centered * centered) + eps)
    return normal * a.param(f"{name}.weight") + a.param(f"{name}.bias")


def _rms_norm(a: Arrays, x: Tensor, name: str) -> Tensor:
    return x * a.rsqrt(a.mean(x * x) + LLAMA_EPS) * a.param(f"{name}.weight")


FAMILIES: dict[str, Callable[[Arrays, Tensor], Tensor]] = {
    "bert_base": _bert,
    "distilbert": _distilbert,
    "llama-15m": _llama,
    "vit_tiny": _vit,
}
