"""The trained models: shapes of MobileFineTuner's examples, with random weights, in its formats."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from pockengine import lora
from pockengine.compiler.sparse import Scheme

RATE, RANK = 1e-4, 8
WORDS = 300
"""Size of the vocabulary; the tokenizer is opened but not used, rows consist of these tokens."""
SPECIALS = ("<|endoftext|>", "<bos>", "<eos>", "<pad>", "<unk>", "<start_of_turn>", "<end_of_turn>")
FLAGS = {
    "gpt2": ("pretrained_dir", "steps", "batch_size", "clip_grad_norm", "lora_out"),
    "gemma": ("model_dir", "max_steps", "batch", "max_grad_norm", "output_dir"),
    "qwen": ("model_dir", "max_steps", "batch_size", "max_grad_norm", "output_dir"),
}
"""Option names in each family's examples: folder, steps, rows, gradient clipping, results."""
PREFIX = "transformer."


@dataclass(frozen=True)
class Case:
    """A net, its training, and MobileFineTuner's example that trains it.

    `row`: the example takes a row of tokens, not a text, so the first losses must be equal.
    """

    name: str
    save: Callable[[Path], None]
    scheme: Scheme | str
    example: str
    binary: str
    row: bool = True

    def program(self, source: Path, build: str) -> Path:
        """Return their program in their example's build folder."""
        return source / "examples" / self.example / build / self.binary

    def command(self, source: Path, build: str, folder: Path, tokens: int, steps: int) -> list[str]:
        """Return their command for a training of this many steps on the files from `write`."""
        flags = FLAGS[self.example.partition("_")[0]]
        arguments = dict(zip(flags, (folder, steps, 1, 0, folder / "out"), strict=True))
        if self.row:
            arguments |= dict.fromkeys(("jsonl_train", "jsonl_valid"), folder / "rows.jsonl")
        else:
            arguments["output_path"] = arguments.pop("lora_out")
            arguments["data_dir"] = folder
        arguments |= {"seq_len": tokens, "lr": RATE}
        return [
            str(self.program(source, build)),
            *(part for key, value in arguments.items() for part in (f"--{key}", str(value))),
        ]


def write(case: Case, folder: Path, tokens: int) -> np.ndarray:
    """Write a model's folder, with data in their format; return its row of tokens i64 [1, T]."""
    folder.mkdir(parents=True, exist_ok=True)
    case.save(folder)
    words = ByteLevelBPETokenizer()
    words.train_from_iterator(["words"], vocab_size=WORDS, special_tokens=list(SPECIALS))
    words.save_model(str(folder))
    words.save(str(folder / "tokenizer.json"))
    row = np.random.default_rng(0).integers(len(SPECIALS), 256, tokens)
    line = json.dumps({"ids": row.tolist(), "mask": [1] * tokens})
    (folder / "rows.jsonl").write_text(f"{line}\n" * 16)
    text = "some words of a text that is long enough\n" * 20_000
    for part in ("train", "valid", "test"):
        (folder / f"wiki.{part}.raw").write_text(text)
    return row[None]


def _gpt2(folder: Path, hidden: int, layers: int, heads: int) -> None:
    """Names of weights have no prefix, as in the file of OpenAI's model."""
    config = GPT2Config(n_embd=hidden, n_layer=layers, n_head=heads)
    GPT2LMHeadModel(config).save_pretrained(folder)
    path = folder / "model.safetensors"
    tensors = {name.removeprefix(PREFIX): array for name, array in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def _gemma(folder: Path, hidden: int, inner: int, layers: int) -> None:
    config = Gemma3TextConfig(
        vocab_size=262_144,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        sliding_window=512,
    )
    Gemma3ForCausalLM(config).save_pretrained(folder)


def _qwen(folder: Path) -> None:
    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        rope_theta=1e6,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


ATTENTION = lora(RANK, 16.0, ["*attn.c_attn.weight", "*attn.c_proj.weight"])
GPT2 = "gpt2_small_lora_finetune"
CASES = {
    case.name: case
    for case in (
        Case("gpt2-lora", lambda folder: _gpt2(folder, 768, 12, 12), ATTENTION, GPT2, "train"),
        Case(
            "gpt2-full",
            lambda folder: _gpt2(folder, 768, 12, 12),
            "full",
            GPT2,
            "train_full",
            row=False,
        ),
        Case(
            "gpt2-medium-lora", lambda folder: _gpt2(folder, 1024, 24, 16), ATTENTION, GPT2, "train"
        ),
        Case(
            "gemma-3-270m-lora",
            lambda folder: _gemma(folder, 640, 2048, 18),
            lora(RANK, 32.0, ["*_proj.weight"]),
            "gemma_3_270m_lora_finetune",
            "train",
        ),
        Case(
            "gemma-3-1b-lora",
            lambda folder: _gemma(folder, 1152, 6912, 26),
            lora(RANK, 32.0, ["*_proj.weight"]),
            "gemma_3_1b_pt_lora_finetune",
            "train",
        ),
        Case(
            "qwen-2.5-0.5b-lora",
            _qwen,
            lora(RANK, 16.0, ["*.self_attn.*_proj.weight"]),
            "qwen_lora_finetune",
            "train_wikitext",
        ),
    )
}
