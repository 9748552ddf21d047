"""BERT and LLaMA built from our ops, with the parameter names of presets and seeded weights."""

from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir import F32, I64, Graph, TensorType, Value
from pockengine.tests.compiler.small_nets import NetBuilder


@dataclass(frozen=True)
class Sizes:
    """Sizes of a transformer."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocabulary: int

    @property
    def head_size(self) -> int:
        """Size of a head."""
        return self.hidden // self.heads


LLAMA2_7B = Sizes(layers=32, hidden=4096, heads=32, ffn=11008, vocabulary=32000)
TINY = Sizes(layers=2, hidden=64, heads=4, ffn=128, vocabulary=100)


def bert_net(batch: int = 2, length: int = 32, sizes: Sizes = TINY) -> Graph:
    """Build a post-norm encoder with biases, GELU, a mask input and a classifier of row 0."""
    net = NetBuilder("bert")
    g = net.g
    ids = g.input("input_ids", TensorType(I64, (batch, length)))
    mask = g.input("attention_mask", TensorType(F32, (batch, 1, 1, length)))
    target = g.input("target", TensorType(I64, (batch,)))
    words = net.weight("embeddings.word_embeddings.weight", sizes.vocabulary, sizes.hidden)
    places = net.weight("embeddings.position_embeddings.weight", length, sizes.hidden)
    x = _layer_norm(net, g.add(g.take(words, ids, axis=0), places), "embeddings.LayerNorm")
    for index in range(sizes.layers):
        x = _bert_layer(net, x, mask, f"encoder.layer.{index}", sizes)
    first = g.slice(x, start=(0, 0, 0), stop=(batch, 1, sizes.hidden), step=(1, 1, 1))
    logits = _linear(net, g.reshape(first, shape=(batch, sizes.hidden)), "classifier", 4)
    g.output("loss", g.cross_entropy(logits, target))
    g.output("output", logits)
    return g.graph


def _bert_layer(net: NetBuilder, x: Value, mask: Value, name: str, sizes: Sizes) -> Value:
    g = net.g
    parts = [
        _split(net, _linear(net, x, f"{name}.attention.self.{part}", sizes.hidden), sizes)
        for part in ("query", "key", "value")
    ]
    scores = g.mul(g.matmul(parts[0], parts[1], transpose_b=True), g.scalar(0.25))
    mixed = _joined(net, g.matmul(g.softmax(g.add(scores, mask)), parts[2]))
    mixed = _linear(net, mixed, f"{name}.attention.output.dense", sizes.hidden)
    x = _layer_norm(net, g.add(x, mixed), f"{name}.attention.output.LayerNorm")
    wide = _linear(net, x, f"{name}.intermediate.dense", sizes.ffn)
    wide = _gelu(net, wide)
    y = _linear(net, wide, f"{name}.output.dense", sizes.hidden)
    return _layer_norm(net, g.add(x, y), f"{name}.output.LayerNorm")


def _gelu(net: NetBuilder, x: Value) -> Value:
    """Return x / 2 (1 + erf(x / sqrt 2))."""
    half = net.g.mul(x, net.g.scalar(0.5))
    erf = net.g.erf(net.g.mul(x, net.g.scalar(0.70710677)))
    return net.g.mul(half, net.g.add(erf, net.g.scalar(1.0)))


def _linear(net: NetBuilder, x: Value, name: str, outputs: int, *, bias: bool = True) -> Value:
    y = net.g.matmul(x, net.weight(f"{name}.weight", x.shape[-1], outputs))
    return net.g.add(y, net.weight(f"{name}.bias", outputs)) if bias else y


def _layer_norm(net: NetBuilder, x: Value, name: str) -> Value:
    y, _ = net.g.emit("layer_norm", x, eps=1e-5).results
    y = net.g.mul(y, net.weight(f"{name}.weight", x.shape[-1], shift=1.0))
    return net.g.add(y, net.weight(f"{name}.bias", x.shape[-1]))


def _split(net: NetBuilder, x: Value, sizes: Sizes) -> Value:
    """Split rows [B, T, hidden] into heads [B, H, T, head_size]."""
    batch, length = x.shape[:2]
    parted = net.g.reshape(x, shape=(batch, length, sizes.heads, sizes.head_size))
    return net.g.transpose(parted, perm=(0, 2, 1, 3))


def _joined(net: NetBuilder, x: Value) -> Value:
    """Concatenate heads to rows."""
    batch, heads, length, size = x.shape
    return net.g.reshape(net.g.transpose(x, perm=(0, 2, 1, 3)), shape=(batch, length, heads * size))


def llama_net(
    batch: int = 1, length: int = 32, sizes: Sizes = TINY, net: NetBuilder | None = None
) -> Graph:
    """Build a causal pre-norm decoder without biases: RMS norm, rotary embedding, SwiGLU."""
    net = net or NetBuilder("llama")
    g = net.g
    ids = g.input("input_ids", TensorType(I64, (batch, length)))
    labels = g.input("labels", TensorType(I64, (batch * length,)))
    table = net.weight("model.embed_tokens.weight", sizes.vocabulary, sizes.hidden)
    x = g.take(table, ids, axis=0)
    turns = _rotary_tables(net, length, sizes)
    causal = g.constant(np.tri(length, dtype=np.bool_), "causal")
    for index in range(sizes.layers):
        x = _llama_layer(net, x, turns, causal, f"model.layers.{index}", sizes)
    x = g.reshape(_rms_norm(net, x, "model.norm"), shape=(batch * length, sizes.hidden))
    logits = _linear(net, x, "lm_head", sizes.vocabulary, bias=False)
    g.output("loss", g.cross_entropy(logits, labels))
    g.output("output", logits)
    return g.graph


def _llama_layer(
    net: NetBuilder, x: Value, turns: tuple[Value, Value], causal: Value, name: str, sizes: Sizes
) -> Value:
    g = net.g
    y = _rms_norm(net, x, f"{name}.input_layernorm")
    query, key, value = (
        _split(net, _linear(net, y, f"{name}.self_attn.{part}", sizes.hidden, bias=False), sizes)
        for part in ("q_proj", "k_proj", "v_proj")
    )
    query, key = _turned(net, query, turns), _turned(net, key, turns)
    scores = g.mul(g.matmul(query, key, transpose_b=True), g.scalar(sizes.head_size**-0.5))
    weights = g.softmax(g.where(causal, scores, g.scalar(-np.inf)))
    mixed = _joined(net, g.matmul(weights, value))
    x = g.add(x, _linear(net, mixed, f"{name}.self_attn.o_proj", sizes.hidden, bias=False))
    y = _rms_norm(net, x, f"{name}.post_attention_layernorm")
    gate = _linear(net, y, f"{name}.mlp.gate_proj", sizes.ffn, bias=False)
    up = _linear(net, y, f"{name}.mlp.up_proj", sizes.ffn, bias=False)
    wide = g.mul(g.mul(gate, g.sigmoid(gate)), up)
    return g.add(x, _linear(net, wide, f"{name}.mlp.down_proj", sizes.hidden, bias=False))


def _rms_norm(net: NetBuilder, x: Value, name: str) -> Value:
    y, _ = net.g.emit("rms_norm", x, eps=1e-5).results
    return net.g.mul(y, net.weight(f"{name}.weight", x.shape[-1], shift=1.0))


def _rotary_tables(net: NetBuilder, length: int, sizes: Sizes) -> tuple[Value, Value]:
    """Return cosines and sines [length, head_size] of each position's angles."""
    half = np.arange(sizes.head_size // 2) / (sizes.head_size // 2)
    angles = np.outer(np.arange(length), 10000.0**-half)
    angles = np.concatenate([angles, angles], axis=1)
    cos = net.g.constant(np.cos(angles).astype(np.float32), "cos")
    return cos, net.g.constant(np.sin(angles).astype(np.float32), "sin")


def _turned(net: NetBuilder, x: Value, turns: tuple[Value, Value]) -> Value:
    """Rotate pairs (i, i + half) of each head's row by its position's angles."""
    g, half = net.g, x.shape[-1] // 2
    low, high = (
        g.slice(x, start=(0, 0, 0, first), stop=(*x.shape[:3], first + half), step=(1, 1, 1, 1))
        for first in (0, half)
    )
    rotated = g.emit("concat", g.neg(high), low, axis=3).result
    return g.add(g.mul(x, turns[0]), g.mul(rotated, turns[1]))
