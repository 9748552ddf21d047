"""Language models of the bench's sizes, from `transformers`, with random weights.

Their parameter names are those of transformers, so a published state_dict of the same shape loads
unchanged. Dropout is off, so that every engine computes the same training step.
"""

import torch
from torch.nn import functional
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
)

IGNORED = -100
"""A label that does not count: the last token has no successor."""


SMALLEST_LLAMA = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 172,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
}
"""The sizes of llama2.c's stories260K, in which two query heads share a key head."""


class Bert(BertForSequenceClassification):
    """BERT-base (109 M parameters: 12 layers of 768) with a classification head."""

    def __init__(self, classes: int = 2, **sizes: int) -> None:
        """Use BERT-base's sizes unless overridden by `sizes`, by transformers' names."""
        config = BertConfig(
            num_labels=classes,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="sdpa",
            **sizes,
        )
        super().__init__(config)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Map token ids [N, L] to logits [N, classes]."""
        return super().forward(input_ids=input_ids).logits


class DistilBert(DistilBertForSequenceClassification):
    """DistilBERT (66 M parameters: 6 layers of 768) with a classification head."""

    def __init__(self, classes: int = 2, **sizes: int) -> None:
        """Use DistilBERT's sizes unless overridden by `sizes`, by transformers' names."""
        config = DistilBertConfig(
            num_labels=classes,
            dropout=0.0,
            attention_dropout=0.0,
            seq_classif_dropout=0.0,
            attn_implementation="sdpa",
            **sizes,
        )
        super().__init__(config)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Map token ids [N, L] to logits [N, classes]."""
        return super().forward(input_ids=input_ids).logits


class Llama(LlamaForCausalLM):
    """LLaMA of llama2.c's stories15M: 6 layers of 288, tied embeddings, 32000 tokens."""

    def __init__(self, **sizes: int) -> None:
        """Use stories15M's sizes unless overridden by `sizes`, by transformers' names."""
        shape = {
            "vocab_size": 32000,
            "hidden_size": 288,
            "intermediate_size": 768,
            "num_hidden_layers": 6,
            "num_attention_heads": 6,
            "max_position_embeddings": 256,
        }
        config = LlamaConfig(
            **{**shape, **sizes},
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            attn_implementation="sdpa",
        )
        super().__init__(config)

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Map token ids [N, L] to logits [N, L, vocabulary] and the mean loss of the next token."""
        logits = super().forward(input_ids=input_ids, use_cache=False).logits
        following = functional.pad(input_ids[:, 1:], (0, 1), value=IGNORED)
        loss = functional.cross_entropy(
            logits.flatten(0, 1), following.flatten(), ignore_index=IGNORED
        )
        return {"loss": loss, "logits": logits}
