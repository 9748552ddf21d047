"""Convert models of llama2.c (github.com/karpathy/llama2.c) to transformers' folders.

A checkpoint is seven sizes and the weights in f32, layer by layer; a tokenizer is its pieces with
their scores. The rotation pairs neighbors, so the rows of queries and keys are reordered.
"""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, processors

from pockengine.errors import ImportModelError

SIZES = ("dim", "hidden", "layers", "heads", "key_heads", "words", "length")
_MARKS = ("<unk>", "<s>", "</s>")
_SPACE = "\u2581"
"""SentencePiece's representation of a space."""


def write_folder(checkpoint: Path, tokenizer: Path, folder: Path) -> None:
    """Write a model with its tokenizer; ImportModelError for files of another format."""
    try:
        sizes, weights = _weights(checkpoint.read_bytes())
        words = _tokenizer(_pieces(tokenizer.read_bytes(), sizes["words"]))
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError, struct.error) as error:
        raise ImportModelError(f"{checkpoint}, {tokenizer}: {error}; copy them again") from error
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_config(sizes), indent=1) + "\n")
    words.save(str(folder / "tokenizer.json"))
    marks = dict(zip(("unk_token", "bos_token", "eos_token"), _MARKS, strict=True))
    (folder / "tokenizer_config.json").write_text(json.dumps(marks) + "\n")


def _config(sizes: dict[str, int]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": sizes["dim"],
        "intermediate_size": sizes["hidden"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["key_heads"],
        "vocab_size": sizes["words"],
        "max_position_embeddings": sizes["length"],
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _weights(data: bytes) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """Split a checkpoint into weights by transformers' names."""
    sizes = dict(zip(SIZES, struct.unpack_from(f"<{len(SIZES)}i", data), strict=True))
    dim, layers = sizes["dim"], sizes["layers"]
    keys = dim // sizes["heads"] * sizes["key_heads"]
    numbers = np.frombuffer(data, np.float32, offset=4 * len(SIZES))
    shapes = {
        "input_layernorm": (dim,),
        "self_attn.q_proj": (dim, dim),
        "self_attn.k_proj": (keys, dim),
        "self_attn.v_proj": (keys, dim),
        "self_attn.o_proj": (dim, dim),
        "post_attention_layernorm": (dim,),
        "mlp.gate_proj": (sizes["hidden"], dim),
        "mlp.down_proj": (dim, sizes["hidden"]),
        "mlp.up_proj": (sizes["hidden"], dim),
    }
    at = sizes["words"] * dim
    found = {"model.embed_tokens.weight": numbers[:at].reshape(-1, dim)}
    for name, shape in shapes.items():
        size = layers * int(np.prod(shape))
        for layer, weight in enumerate(numbers[at : at + size].reshape(layers, *shape)):
            found[f"model.layers.{layer}.{name}.weight"] = weight
        at += size
    found["model.norm.weight"] = numbers[at : at + dim]
    for name, weight in found.items():
        heads = {"q_proj": sizes["heads"], "k_proj": sizes["key_heads"]}.get(name.split(".")[-2])
        if heads is not None:
            rows = weight.reshape(heads, -1, 2, dim).swapaxes(1, 2)
            found[name] = np.ascontiguousarray(rows).reshape(weight.shape)
    return sizes, found


def _pieces(data: bytes, count: int) -> list[str]:
    """Read the pieces in the order of their ids, which is that of their scores."""
    pieces, at = [], 4
    for _ in range(count):
        (size,) = struct.unpack_from("<i", data, at + 4)
        pieces.append(data[at + 8 : at + 8 + size].decode("utf-8").replace(" ", _SPACE))
        at += 8 + size
    return [*_MARKS, *pieces[len(_MARKS) :]]


def _tokenizer(pieces: list[str]) -> Tokenizer:
    """Make a tokenizer that merges the lowest piece id first, and falls back to bytes."""
    words = {piece: number for number, piece in enumerate(pieces)}
    merges = [
        (piece[:cut], piece[cut:])
        for piece in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in words and piece[cut:] in words
    ]
    made = Tokenizer(
        models.BPE(vocab=words, merges=merges, unk_token=_MARKS[0], byte_fallback=True)
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)]
    )
    begin = (_MARKS[1], words[_MARKS[1]])
    made.post_processor = processors.TemplateProcessing(
        single=f"{begin[0]} $A", special_tokens=[begin]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace(_SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return made
