"""Vision transformers from `transformers`, with random weights and without dropout."""

import torch
from transformers import ViTConfig, ViTForImageClassification

PATCH = 16


class VisionTransformer(ViTForImageClassification):
    """ViT-tiny (5.7 M parameters: 12 layers of 192, patches of 16x16) on square pictures."""

    def __init__(self, resolution: int = 224, classes: int = 1000, **sizes: int) -> None:
        """Use ViT-tiny's sizes unless overridden by `sizes`, by transformers' names."""
        shape = {
            "hidden_size": 192,
            "num_hidden_layers": 12,
            "num_attention_heads": 3,
            "intermediate_size": 768,
            "patch_size": PATCH,
        }
        config = ViTConfig(
            **{**shape, **sizes},
            image_size=resolution,
            num_labels=classes,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="sdpa",
        )
        super().__init__(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map pictures [N, 3, resolution, resolution] to logits [N, classes]."""
        return super().forward(pixel_values=x).logits
