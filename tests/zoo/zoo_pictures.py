"""Tiny image and audio models of transformers, built from configurations."""

from typing import Any

import torch
import transformers

from pockengine.tests.zoo.zoo_cases import (
    CLASSES,
    LENGTH,
    SIDE,
    WORDS,
    Builder,
    Case,
    labels,
    pictures,
    words,
)
from pockengine.tests.zoo.zoo_language import PAIRED, SMALL, build

VIT = {**SMALL, "image_size": SIDE, "patch_size": 8}
VIT = {key: value for key, value in VIT.items() if "token" not in key and key != "vocab_size"}
STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]}


def pictured(name: str, kind: str | None = None, side: int = SIDE, **settings: Any) -> Builder:
    """Build an image classifier with its own loss."""

    def case() -> Case:
        module = build(
            name, kind or f"{name}ForImageClassification", **settings, num_labels=CLASSES
        )
        return Case(module, {"pixel_values": pictures(4, side), "labels": labels(4)})

    return case


def segformer() -> Case:
    """Build SegFormer, which predicts a class for each pixel."""
    module = build(
        "Segformer",
        "SegformerForSemanticSegmentation",
        **STAGES,
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=16,
        num_labels=CLASSES,
        drop_path_rate=0.0,
    )
    return Case(module, {"pixel_values": pictures(), "labels": labels(2, SIDE, SIDE)})


class Detector(torch.nn.Module):
    """DETR's classes and boxes, with our own loss, because its matching needs scipy."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.detr = module

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        found = self.detr(pixel_values)
        return found.logits.square().mean() + found.pred_boxes.mean()


def detr() -> Case:
    """Build DETR: a convolutional backbone followed by a transformer."""
    backbone = transformers.ResNetConfig(
        **{"embedding_size": 8, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]},
        out_features=["stage4"],
        layer_type="basic",
    )
    settings = {key: value for key, value in PAIRED.items() if "token" not in key}
    del settings["vocab_size"]
    module = build(
        "Detr",
        "DetrForObjectDetection",
        **settings,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        num_queries=5,
        num_labels=CLASSES,
        auxiliary_loss=False,
    )
    return Case(Detector(module), {"pixel_values": pictures(side=64)})


def masked_autoencoder() -> Case:
    """Build ViT-MAE, which masks random patches; the noise is an input."""
    decoder = {
        "decoder_hidden_size": 16,
        "decoder_num_hidden_layers": 1,
        "decoder_num_attention_heads": 2,
        "decoder_intermediate_size": 24,
    }
    module = build("ViTMAE", "ViTMAEForPreTraining", **VIT, **decoder)
    return Case(module, {"pixel_values": pictures(), "noise": torch.rand(2, 16)})


class Contrast(torch.nn.Module):
    """CLIP with its contrastive loss."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.clip = module

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.clip(input_ids, pixel_values, return_loss=True).loss
        return loss


def clip() -> Case:
    """Build CLIP on images and texts."""
    config = transformers.CLIPConfig(
        text_config={**SMALL, "projection_dim": 16},
        vision_config={**VIT, "projection_dim": 16},
        projection_dim=16,
    )
    text = words()
    text[:, -1] = 2
    module = Contrast(transformers.CLIPModel(config)).train()
    return Case(module, {"input_ids": text, "pixel_values": pictures()})


def wav2vec2(name: str = "Wav2Vec2") -> Builder:
    """Build a classifier of raw audio."""

    def case() -> Case:
        small = {key: value for key, value in SMALL.items() if key != "max_position_embeddings"}
        module = build(
            name,
            f"{name}ForSequenceClassification",
            **small,
            conv_dim=[8, 8],
            conv_stride=[5, 2],
            conv_kernel=[10, 3],
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=2,
            classifier_proj_size=16,
            num_labels=CLASSES,
            mask_time_prob=0.0,
            mask_feature_prob=0.0,
            apply_spec_augment=False,
            feat_proj_dropout=0.0,
            final_dropout=0.0,
            hidden_dropout=0.0,
        )
        return Case(module, {"input_values": torch.randn(2, 400), "labels": labels(2)})

    return case


def whisper() -> Case:
    """Build Whisper, from audio to text."""
    settings = {key: value for key, value in PAIRED.items() if key != "max_position_embeddings"}
    module = build(
        "Whisper",
        "WhisperForConditionalGeneration",
        **settings,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=16,
        apply_spec_augment=False,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return Case(module, {"input_features": torch.randn(2, 8, 32), "labels": words(length=6)})


def time_series() -> Case:
    """Build PatchTST for forecasting."""
    module = build(
        "PatchTST",
        "PatchTSTForClassification",
        num_input_channels=2,
        context_length=32,
        patch_length=8,
        patch_stride=8,
        d_model=16,
        num_attention_heads=2,
        num_hidden_layers=2,
        ffn_dim=24,
        num_targets=CLASSES,
        attention_dropout=0.0,
        positional_dropout=0.0,
        path_dropout=0.0,
        ff_dropout=0.0,
        head_dropout=0.0,
        use_cls_token=True,
    )
    return Case(module, {"past_values": torch.randn(2, 32, 2), "target_values": labels(2)})


SWIN = {"image_size": SIDE, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4]}

PICTURES: dict[str, Builder] = {
    "vit": pictured("ViT", **VIT),
    "deit": pictured("DeiT", **VIT),
    "beit": pictured("Beit", **VIT, drop_path_rate=0.0),
    "dinov2": pictured("Dinov2", **VIT),
    "swin": pictured("Swin", **SWIN, window_size=4, drop_path_rate=0.0),
    "swin-drop-path": pictured("Swin", **SWIN, window_size=4, drop_path_rate=0.5),
    "swinv2": pictured("Swinv2", **SWIN, window_size=4, drop_path_rate=0.0),
    "convnext": pictured("ConvNext", side=64, **STAGES, num_stages=4),
    "convnextv2": pictured("ConvNextV2", side=64, **STAGES, num_stages=4),
    "resnet": pictured("ResNet", side=64, **STAGES, embedding_size=8, layer_type="basic"),
    "resnet-bottleneck": pictured("ResNet", side=64, **STAGES, embedding_size=8),
    "regnet": pictured("RegNet", side=64, **STAGES, embedding_size=8, groups_width=4),
    "efficientnet": pictured(
        "EfficientNet",
        side=64,
        width_coefficient=0.25,
        depth_coefficient=0.1,
        image_size=64,
        hidden_dim=320,
        drop_connect_rate=0.0,
    ),
    "mobilenet-v1": pictured("MobileNetV1", side=64, depth_multiplier=0.25, image_size=64),
    "mobilenet-v2": pictured("MobileNetV2", side=64, depth_multiplier=0.25, image_size=64),
    "mobilevit": pictured(
        "MobileViT",
        side=64,
        image_size=64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[4, 8, 8, 16, 16, 16, 32],
        num_attention_heads=2,
    ),
    "poolformer": pictured("PoolFormer", side=64, **STAGES, drop_path_rate=0.0),
    "levit": pictured(
        "Levit",
        side=64,
        image_size=64,
        hidden_sizes=[16, 24, 32],
        num_attention_heads=[2, 2, 2],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
        drop_path_rate=0,
    ),
    "cvt": pictured(
        "Cvt",
        embed_dim=[8, 16, 24],
        num_heads=[1, 2, 3],
        depth=[1, 2, 3],
        drop_path_rate=[0.0] * 3,
        drop_rate=[0.0] * 3,
    ),
    "segformer": segformer,
    "detr": detr,
    "vit-mae": masked_autoencoder,
    "clip": clip,
    "wav2vec2": wav2vec2(),
    "hubert": wav2vec2("Hubert"),
    "whisper": whisper,
    "patchtst": time_series,
}
assert WORDS > LENGTH
