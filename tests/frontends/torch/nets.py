"""Small nets of families other than convolutional classifiers, and one convolutional net."""

import torch
from torch import nn
from torch.nn import functional


class EncoderLayer(nn.Module):
    """Pre-norm causal self-attention and a GELU MLP, both with a skip."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(size)
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)
        self.mlp = nn.Sequential(
            nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, size = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, size))
        return x + self.mlp(x)


class TextClassifier(nn.Module):
    """Embedding with positions, two encoder layers, mean, linear: (N, 12) words to 5 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 32)
        self.positions = nn.Parameter(torch.randn(12, 32) * 0.1)
        self.layers = nn.Sequential(EncoderLayer(32, 4), EncoderLayer(32, 4))
        self.head = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(x) + self.positions).mean(1))


class AudioClassifier(nn.Sequential):
    """1-D convolutions, one of them depthwise: (N, 4, 40) samples to 5 classes."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv1d(4, 16, 5, stride=2, padding=2),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Conv1d(16, 16, 3, padding=1, groups=16),
            nn.Conv1d(16, 24, 1),
            nn.SiLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(24, 5),
        )


class SmallUNet(nn.Module):
    """A one-level U-Net with a transposed convolution and a resize: 5 classes per pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.leave = nn.Conv2d(16, 5, 3, padding=1)
        self.coarse = nn.Conv2d(16, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = functional.relu(self.enter(x))
        deep = self.down(fine)
        joined = self.leave(torch.cat([fine, self.up(deep)], 1))
        return joined + functional.interpolate(self.coarse(deep), scale_factor=2)


def convolution_and_head() -> nn.Sequential:
    """Return a convolution and a head of 3 classes, for pictures [N, 1, 6, 6]."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
    )
