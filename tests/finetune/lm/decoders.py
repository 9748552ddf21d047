"""Folders of tiny decoders with random weights and a byte-level tokenizer."""

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from pockengine.tests.models.tokenizer_kinds import MARK

MARKS = ("<unk>", "<s>", "</s>")
WORDS = 260
QUESTIONS = ("What does a cow say?", "And a dog, zuletzt — ein Hund? 🐕")
LIMIT = 12
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def tokenizer(template: str | None = TEMPLATE) -> Any:
    """Return a tokenizer of three special tokens and one token per byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: number for number, word in enumerate((*MARKS, *alphabet))}
    inner = Tokenizer(models.BPE(vocab=words, merges=[], unk_token=MARKS[0]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    marks = dict(zip(("unk_token", "bos_token", "eos_token"), MARKS, strict=True))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **marks)
    fast.chat_template = template
    return fast


SPACED = (
    "{{ '<s>' }}{% for m in messages %}{{ '[I] ' + m['content'] + ' [/I]' if m['role'] == 'user' "
    "else ' ' + m['content'] + '</s>' }}{% endfor %}"
)
"""Writes a space before an answer, like the templates of LLaMA 2, Mistral, Vicuna and Falcon."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def spaced_letters(template: str) -> Any:
    """Return a SentencePiece tokenizer of bytes, and of letters after a space, which come last."""
    space = "\u2581"
    plain = [*MARKS, *(f"<0x{byte:02X}>" for byte in range(256)), space, *LETTERS]
    words = {word: number for number, word in enumerate(plain + [space + c for c in LETTERS])}
    merges = [(space, letter) for letter in LETTERS]
    inner = Tokenizer(models.BPE(words, merges, unk_token=MARKS[0], byte_fallback=True))
    parts = [normalizers.Prepend(space), normalizers.Replace(" ", space)]
    inner.normalizer = normalizers.Sequence(parts)
    joined = [decoders.Replace(space, " "), decoders.ByteFallback(), decoders.Fuse()]
    inner.decoder = decoders.Sequence([*joined, decoders.Strip(" ", 1, 0)])
    marks = dict(zip(("unk_token", "bos_token", "eos_token"), MARKS, strict=True))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **marks)
    fast.chat_template = template
    return fast


def llama(**sizes: Any) -> transformers.LlamaForCausalLM:
    """Return a LLaMA of two layers of width 32."""
    torch.manual_seed(0)
    shape = {
        "vocab_size": WORDS,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config = transformers.LlamaConfig(**{**shape, **sizes})
    return transformers.LlamaForCausalLM(config)


def save(folder: Path, model: Any = None, template: str | None = TEMPLATE) -> Path:
    """Write a folder in transformers' format, with several shards."""
    model = llama() if model is None else model
    model.save_pretrained(folder, max_shard_size="30KB")
    tokenizer(template).save_pretrained(folder)
    return folder


def answers_of(folder: Path, limit: int = LIMIT, stop: str = "") -> list[str]:
    """Return the answers of transformers to the questions in one chat, up to a stop text."""
    words = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    messages: list[dict[str, str]] = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        text = words.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = words(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            more = {"max_new_tokens": limit, "pad_token_id": 0, "attention_mask": ids > -1}
            new = model.generate(ids, do_sample=False, **more)
        answer = words.decode(new[0, ids.shape[1] :], skip_special_tokens=True)
        answer = answer.partition(stop)[0] if stop else answer
        messages.append({"role": "assistant", "content": answer})
    return [message["content"] for message in messages[1::2]]


def pieces_of_words() -> list[tuple[str, float]]:
    """Return a vocabulary of Unigram for the model: capital letters become beginnings of words.

    Tokens that are in no answer become other characters.
    """
    others = iter((MARK, *",.?\n", "do", "ow", MARK + "a"))
    rows = []
    for word, place in sorted(tokenizer().get_vocab().items(), key=lambda row: row[1]):
        letter = word.isascii() and word.isalpha()
        piece = word if letter or word in MARKS else next(others, f"<{place}>")
        rows.append((MARK + word.lower() if letter and word.isupper() else piece, -place / 99))
    return rows


def unigram_words() -> Any:
    """Return the tokenizer with these tokens."""
    inner = Tokenizer(models.Unigram(pieces_of_words(), unk_id=0))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.Fuse()])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        **dict(zip(("unk_token", "bos_token", "eos_token"), MARKS, strict=True)),
        chat_template=TEMPLATE,
    )


def speaking() -> Any:
    """Return a decoder that generates only letters: the logits of all other tokens are 0."""
    model = llama(max_position_embeddings=256, initializer_range=0.3)
    alphabet = tokenizer().get_vocab()
    with torch.no_grad():
        for word, number in alphabet.items():
            if not (word.isascii() and word.isalpha() and word not in MARKS):
                model.lm_head.weight[number] = 0
    return model
