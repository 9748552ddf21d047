"""MiniLM-L6 as a classifier of sentences: mean pooling over the tokens, then a new linear head.

Weights, vocabulary and tokenizer are those of sentence-transformers/all-MiniLM-L6-v2, in the
caller's folder; nothing is downloaded.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers import BertConfig, BertModel

from pockengine.errors import ImportModelError, reason_of

PAD = 0
"""The padding token; attention and pooling ignore it."""

_UNUSED = {"pooler.dense.bias", "pooler.dense.weight", "embeddings.position_ids"}


class MiniLM(nn.Module):
    """BERT's encoder of a given configuration, without dropout, with a linear head."""

    def __init__(self, config: BertConfig, classes: int) -> None:
        """Draw random weights; `load_minilm` loads the published ones."""
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)
        self.classifier = nn.Linear(config.hidden_size, classes)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Map token ids [N, L] to logits [N, classes]."""
        real = input_ids.ne(PAD)
        states = self.bert(input_ids=input_ids, attention_mask=real).last_hidden_state
        weight = real.to(states.dtype).unsqueeze(-1)
        return self.classifier((states * weight).sum(1) / weight.sum(1))


def minilm_config(**sizes: int) -> BertConfig:
    """Return MiniLM-L6's sizes unless overridden by `sizes`, by transformers' names."""
    shape = {
        "hidden_size": 384,
        "intermediate_size": 1536,
        "num_attention_heads": 12,
        "num_hidden_layers": 6,
    }
    return BertConfig(
        **{**shape, **sizes},
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )


def load_minilm(folder: Path, classes: int) -> MiniLM:
    """Load `model.safetensors` of a folder; the head is drawn from PyTorch's random state.

    Raises ImportModelError for a folder without it, or with another model's weights.
    """
    model = MiniLM(minilm_config(), classes)
    path = folder / "model.safetensors"
    try:
        state = load_file(path)
        missing, unexpected = model.bert.load_state_dict(state, strict=False)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise ImportModelError(
            f"{path} holds no weights of MiniLM-L6: {reason_of(error)}"
        ) from error
    wrong = sorted({*missing, *unexpected} - _UNUSED)
    if wrong:
        raise ImportModelError(f"{path}: names that do not fit MiniLM-L6: {', '.join(wrong)}")
    return model.eval()
