"""Vision-language models by LoRA compared with peft: ten steps from the same factors."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from peft import PeftModel
from torch import nn
from torch.nn import functional
from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    GemmaConfig,
    Lfm2VlConfig,
    Lfm2VlForConditionalGeneration,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    SiglipVisionConfig,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    SmolVLMVisionConfig,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling

import pockengine

IMAGE, VOCABULARY, TOKENS = 127, 128, 26
STEPS = 10
PATCHES = [[4, 4], [4, 4]]  # rows and columns of the patches of each picture
GRID = [[1, 8, 8], [1, 8, 8]]  # frames, rows and columns of the patches of each picture
BLOCKS = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
VISION = BLOCKS | {"image_size": 32, "patch_size": 8}
TEXT = BLOCKS | {"vocab_size": VOCABULARY, "num_key_value_heads": 1, "head_dim": 16}

Rows = dict[str, torch.Tensor]


class FixedPatches(nn.Module):
    """LFM2-VL with picture sizes as Python numbers, because shapes depend on them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor) -> Any:
        return self.model(
            input_ids=input_ids,
            pixel_values=pixel_values,
            spatial_shapes=torch.tensor(PATCHES),
            pixel_attention_mask=torch.ones(2, 16, dtype=torch.int64),
            use_cache=False,
        )


class AllPictures(nn.Module):
    """SmolVLM without its removal of blank pictures, whose number is data-dependent."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor) -> Any:
        parts = self.model.model
        mask = torch.ones(len(pixel_values), 4, 4, dtype=torch.bool)
        seen = parts.vision_model(pixel_values, patch_attention_mask=mask).last_hidden_state
        features = BaseModelOutputWithPooling(pooler_output=parts.connector(seen).flatten(0, 1))
        return self.model(
            input_ids=input_ids, mm_encoder_outputs={"image": features}, use_cache=False
        )


class PictureMasks(nn.Module):
    """Gemma 3 with masks of tensor operations: the tokens of a picture see each other."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor) -> Any:
        picture = input_ids == IMAGE
        begins = picture & ~functional.pad(picture, (1, 0))[:, :-1]
        number = begins.long().cumsum(1)
        together = (number[:, :, None] == number[:, None]) & picture[:, :, None] & picture[:, None]
        places = torch.arange(input_ids.shape[1])
        distance = places[:, None] - places
        full = (distance >= 0) | together
        sliding = full & (distance < self.model.config.text_config.sliding_window)
        return self.model(
            input_ids=input_ids,
            pixel_values=pixel_values,
            attention_mask={
                "full_attention": full[:, None],
                "sliding_attention": sliding[:, None],
            },
            use_cache=False,
        )


class FixedGrid(nn.Module):
    """Qwen2-VL or Qwen2.5-VL with the sizes of its pictures, and so of attention, as numbers."""

    def __init__(self, model: nn.Module) -> None:
        from transformers import vision_utils  # 5.0 has none

        super().__init__()
        self.model, self.grid = model, torch.tensor(GRID)
        tower = model.model.visual
        merged = tower.spatial_merge_size
        self.places: dict[str, Any] = {
            "cu_seqlens": vision_utils.get_vision_cu_seqlens(self.grid).numpy(),
            "position_ids": vision_utils.get_vision_position_ids(self.grid, merged),
        }
        if hasattr(tower, "window_size"):
            sizes = (merged, tower.window_size, tower.patch_size)
            index, windows = vision_utils.get_vision_window_index(self.grid, *sizes)
            self.places |= {"window_index": index, "cu_window_seqlens": windows.numpy()}

    def forward(
        self, input_ids: torch.Tensor, pixel_values: torch.Tensor, position_ids: torch.Tensor
    ) -> Any:
        visual = self.model.model.visual
        seen = visual(pixel_values.flatten(0, 1), grid_thw=self.grid, **self.places)
        features = BaseModelOutputWithPooling(pooler_output=(seen.pooler_output,))
        return self.model(
            input_ids=input_ids,
            position_ids=position_ids.transpose(0, 1),
            mm_encoder_outputs={"image": features},
            use_cache=False,
        )


def llava() -> nn.Module:
    vision, text = CLIPVisionConfig(**VISION), LlamaConfig(**TEXT)
    return LlavaForConditionalGeneration(
        LlavaConfig(vision_config=vision, text_config=text, image_token_id=IMAGE)
    )


def paligemma() -> nn.Module:
    vision = SiglipVisionConfig(**VISION, projection_dim=32, vision_use_head=False)
    return PaliGemmaForConditionalGeneration(
        PaliGemmaConfig(
            vision_config=vision.to_dict(),
            text_config=GemmaConfig(**TEXT).to_dict(),
            image_token_index=IMAGE,
            projection_dim=32,
            hidden_size=32,
        )
    )


def needs_encoder_outputs() -> None:
    """Skip with a transformers whose models do not take `mm_encoder_outputs`."""
    if "mm_encoder_outputs" not in signature(Qwen2VLForConditionalGeneration.forward).parameters:
        pytest.skip(f"needs transformers 5.18, not {transformers.__version__}")


def smolvlm() -> nn.Module:
    needs_encoder_outputs()
    config = SmolVLMConfig(
        vision_config=SmolVLMVisionConfig(**VISION).to_dict(),
        text_config=LlamaConfig(**TEXT).to_dict(),
        image_token_id=IMAGE,
        scale_factor=2,
    )
    return AllPictures(SmolVLMForConditionalGeneration(config))


def lfm2_vl() -> nn.Module:
    kind = {"model_type": "siglip2_vision_model", "num_patches": 16, "vision_use_head": False}
    layers = {"model_type": "lfm2", "layer_types": ["conv", "full_attention"]}
    config = Lfm2VlConfig(
        vision_config=BLOCKS | {"patch_size": 8} | kind,
        text_config={key: TEXT[key] for key in TEXT if key != "head_dim"} | layers,
        image_token_id=IMAGE,
        downsample_factor=2,
        projector_hidden_size=32,
    )
    return FixedPatches(Lfm2VlForConditionalGeneration(config))


def gemma3() -> nn.Module:
    layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
    config = Gemma3Config(
        vision_config=SiglipVisionConfig(**VISION, vision_use_head=False).to_dict(),
        text_config=Gemma3TextConfig(**TEXT, **layers).to_dict(),
        image_token_id=IMAGE,
        mm_tokens_per_image=4,
    )
    return PictureMasks(Gemma3ForConditionalGeneration(config))


SECTIONS = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
QWEN = {
    "text_config": {key: TEXT[key] for key in TEXT if key != "head_dim"}
    | {"rope_parameters": SECTIONS, "bos_token_id": 1, "eos_token_id": 2},
    "image_token_id": IMAGE,
}


def qwen2_vl() -> nn.Module:
    needs_encoder_outputs()
    vision = {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "patch_size": 8}
    return FixedGrid(Qwen2VLForConditionalGeneration(Qwen2VLConfig(vision_config=vision, **QWEN)))


def qwen2_5_vl() -> nn.Module:
    needs_encoder_outputs()
    vision = BLOCKS | {"depth": 2, "num_heads": 2, "patch_size": 8, "out_hidden_size": 32}
    windows = {"window_size": 32, "fullatt_block_indexes": [1]}
    config = Qwen2_5_VLConfig(vision_config=vision | windows, **QWEN)
    return FixedGrid(Qwen2_5_VLForConditionalGeneration(config))


def of_pixels(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(2, 3, 32, 32, generator=generator)


def of_patches(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(2, 16, 3 * 8 * 8, generator=generator)


def of_frames(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(2, 64, 3 * 2 * 8 * 8, generator=generator)


def rows(pictures: Callable[[torch.Generator], torch.Tensor], placeholders: int) -> Rows:
    """Return two rows: a token, the picture's placeholders, and text to learn."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, IMAGE, (2, TOKENS), generator=generator)
    tokens[:, 1 : 1 + placeholders] = IMAGE
    target = tokens.masked_fill(tokens == IMAGE, -100)
    return {"input_ids": tokens, "pixel_values": pictures(generator), "target": target}


def loss_of(outputs: Any, target: torch.Tensor) -> torch.Tensor:
    logits = outputs["logits"][:, :-1].reshape(-1, VOCABULARY)
    return functional.cross_entropy(logits, target[:, 1:].reshape(-1))


def inputs_of(model: nn.Module, batch: Rows) -> Rows:
    """Return a batch without its target, and with the positions that Qwen2-VL needs."""
    inputs = {name: tensor for name, tensor in batch.items() if name != "target"}
    if isinstance(model, FixedGrid):
        pictures = (inputs["input_ids"] == IMAGE).int()
        index = model.model.model.get_rope_index
        positions, _ = index(inputs["input_ids"], pictures, image_grid_thw=model.grid)
        inputs["position_ids"] = positions.transpose(0, 1).contiguous()
    return inputs


@pytest.mark.parametrize(
    ("make", "batch"),
    [
        pytest.param(gemma3, rows(of_pixels, 4), id="gemma3"),
        pytest.param(qwen2_vl, rows(of_frames, 16), id="qwen2-vl"),
        pytest.param(qwen2_5_vl, rows(of_frames, 16), id="qwen2.5-vl"),
    ],
)
def test_wrapper_equals_the_model(make: Callable[[], nn.Module], batch: Rows) -> None:
    torch.manual_seed(0)
    model = make().eval()
    inputs = inputs_of(model, batch)
    own = {"input_ids": inputs["input_ids"], "pixel_values": inputs["pixel_values"]}
    pictures = (own["input_ids"] == IMAGE).int()
    if isinstance(model, FixedGrid):
        own["pixel_values"] = own["pixel_values"].flatten(0, 1)
        own |= {"image_grid_thw": model.grid, "mm_token_type_ids": pictures}
    else:
        own["token_type_ids"] = pictures
    with torch.no_grad():
        expected, ours = model.model(**own).logits, model(**inputs).logits
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(
    ("make", "batch", "rate"),
    [
        pytest.param(llava, rows(of_pixels, 16), 0.3, id="llava"),
        pytest.param(
            paligemma, rows(of_pixels, 16), 2.0, id="paligemma", marks=pytest.mark.nightly
        ),
        pytest.param(smolvlm, rows(of_pixels, 4), 0.3, id="smolvlm", marks=pytest.mark.nightly),
        pytest.param(lfm2_vl, rows(of_patches, 4), 2.0, id="lfm2-vl", marks=pytest.mark.nightly),
        pytest.param(gemma3, rows(of_pixels, 4), 0.3, id="gemma3", marks=pytest.mark.nightly),
        pytest.param(qwen2_vl, rows(of_frames, 16), 0.3, id="qwen2-vl", marks=pytest.mark.nightly),
        pytest.param(
            qwen2_5_vl, rows(of_frames, 16), 0.3, id="qwen2.5-vl", marks=pytest.mark.nightly
        ),
    ],
)
def test_training_equals_peft(
    make: Callable[[], nn.Module], batch: Rows, rate: float, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = make().eval()
    inputs = inputs_of(model, batch)
    if make is paligemma:  # its prefix has bidirectional attention
        inputs["token_type_ids"] = (inputs["input_ids"] == IMAGE).long()

    feed = inputs | {"target": batch["target"]}
    compiled = pockengine.compile(model, feed, loss=loss_of, scheme="lora-4")
    with compiled.session() as session:
        compiled.save_adapters(session, tmp_path)
        arrays = {name: tensor.numpy() for name, tensor in feed.items()}
        ours = [float(session.train_step(arrays, lr=rate)["loss"]) for _ in range(STEPS)]

    theirs = PeftModel.from_pretrained(model, tmp_path, is_trainable=True).eval()
    places = {name for name, value in theirs.named_parameters() if value.requires_grad}
    towers = ("vision_", ".visual.")
    in_tower = {any(part in name for part in towers) for name in places}
    assert in_tower == {True, False}  # the decoder's too
    optimizer = torch.optim.SGD([x for x in theirs.parameters() if x.requires_grad], rate)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(theirs(**inputs), batch["target"])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(ours, losses, rtol=1e-4)
    assert losses[-1] < losses[0] - 0.01
