"""Models of every family: ten training steps in generated C, compared with PyTorch's.

Sizes are tiny, but structures are complete. Training on random images is chaotic, so nets with
batch norms start with open gates (see `farm/bench/case`), and each step starts from PyTorch's
weights. Four such steps are enough, as they are independent.
"""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import (
    EfficientNetConfig,
    EfficientNetForImageClassification,
    GPT2Config,
    GPT2LMHeadModel,
)

from pockengine.models.language import Bert, DistilBert, Llama
from pockengine.models.mobilenet_v3 import MobileNetV3Small
from pockengine.models.resnet import Bottleneck, ResNet
from pockengine.models.vit import VisionTransformer
from pockengine.tests.frontends.torch.compiled import Batch, check_steps, open_gates

CLASSES, WORDS = 5, 40
STEPS, STEPS_ALONE = 10, 4


class Logits(nn.Module):
    """Return only the logits of a transformers model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).logits


class NextToken(nn.Module):
    """Return transformers' own loss of a causal model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.model(x, labels=x, use_cache=False).loss}


class Recurrent(nn.Module):
    """An embedding, a recurrent layer that PyTorch unrolls, and a linear head."""

    def __init__(self, layer: nn.Module, outputs: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.layer = layer
        self.head = nn.Linear(outputs, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.words(x))[0][:, -1])


class GruCell(nn.Module):
    """A GRU cell unrolled by the model itself: (N, L, 8) to (N, L, 12)."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 12)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        state, states = torch.zeros(x.shape[0], 12), []
        for step in x.unbind(1):
            state = self.cell(step, state)
            states.append(state)
        return (torch.stack(states, 1),)


def bert() -> nn.Module:
    return Bert(
        CLASSES,
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
    )


def distilbert() -> nn.Module:
    return DistilBert(CLASSES, vocab_size=WORDS, dim=32, n_layers=2, n_heads=2, hidden_dim=48)


def gpt2() -> nn.Module:
    config = GPT2Config(
        vocab_size=WORDS,
        n_embd=32,
        n_layer=2,
        n_head=2,
        n_positions=16,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return NextToken(GPT2LMHeadModel(config))


def llama() -> nn.Module:
    return Llama(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )


def vit() -> nn.Module:
    return VisionTransformer(
        32,
        CLASSES,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        patch_size=8,
    )


def efficientnet() -> nn.Module:
    """Build three of B0's seven stages at an eighth of the width, with one block each."""
    config = EfficientNetConfig(
        image_size=32,
        width_coefficient=0.125,
        depth_coefficient=1.0,
        hidden_dim=160,
        kernel_sizes=[3, 3, 5],
        in_channels=[32, 16, 24],
        out_channels=[16, 24, 40],
        strides=[1, 2, 2],
        num_block_repeats=[1, 1, 1],
        expand_ratios=[1, 6, 6],
        depthwise_padding=[],
        dropout_rate=0.0,
        drop_connect_rate=0.0,
        num_labels=CLASSES,
    )
    return Logits(EfficientNetForImageClassification(config))


def bottlenecks() -> nn.Module:
    """Build ResNet-50 with two blocks per stage: one with a projected skip, one without."""
    return ResNet(Bottleneck, (2, 2, 2, 2), CLASSES)


def words(generator: torch.Generator) -> Batch:
    return (
        torch.randint(WORDS, (2, 10), generator=generator),
        torch.randint(CLASSES, (2,), generator=generator),
    )


def short_sequences(generator: torch.Generator) -> Batch:
    x, y = words(generator)
    return x[:, :5], y


def sentence(generator: torch.Generator) -> Batch:
    return torch.randint(WORDS, (2, 10), generator=generator), None


def picture(generator: torch.Generator) -> Batch:
    return (
        torch.randn(2, 3, 32, 32, generator=generator),
        torch.randint(CLASSES, (2,), generator=generator),
    )


def pictures(generator: torch.Generator) -> Batch:
    return (
        torch.randn(4, 3, 64, 64, generator=generator),
        torch.randint(CLASSES, (4,), generator=generator),
    )


def batches_by(batch: Callable[[torch.Generator], Batch]) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    return [batch(generator) for _ in range(STEPS)]


FREE: dict[str, tuple[Callable[[], nn.Module], Callable[[torch.Generator], Batch]]] = {
    "BERT": (bert, words),
    "DistilBERT": (distilbert, words),
    "GPT-2": (gpt2, sentence),
    "LLaMA": (llama, sentence),
    "ViT": (vit, picture),
    "GRU": (lambda: Recurrent(nn.GRU(8, 12, 2, batch_first=True), 12), short_sequences),
    "GRU cell": (lambda: Recurrent(GruCell(), 12), short_sequences),
    "LSTM": (
        lambda: Recurrent(nn.LSTM(8, 6, batch_first=True, bidirectional=True), 12),
        short_sequences,
    ),
}


@pytest.mark.parametrize("name", FREE)
def test_ten_free_steps_follow_pytorch(name: str) -> None:
    torch.manual_seed(0)
    build, batch = FREE[name]

    check_steps(build().train(), batches_by(batch), lr=0.02, resume=False, threads=1)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: MobileNetV3Small(CLASSES), id="MobileNetV3-small"),
        pytest.param(bottlenecks, id="ResNet of bottlenecks", marks=pytest.mark.nightly),
        pytest.param(efficientnet, id="EfficientNet-B0", marks=pytest.mark.nightly),
    ],
)
def test_single_steps_of_batch_norm_nets_follow_pytorch(
    build: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(0)
    model = build().train()
    open_gates(model)

    check_steps(model, batches_by(pictures)[:STEPS_ALONE], lr=1e-3, resume=True, threads=1)
