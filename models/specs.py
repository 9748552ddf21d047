"""Sizes of the benchmark's nets as data, without a framework, for all code that builds these nets.

The nets are defined beside this file in PyTorch, and in farm/references/nets.py for the frameworks
that PockEngine is compared with.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class NetSpec:
    """An MCUNet: its stem's channels, and per block (kernel, expansion, channels, stride)."""

    stem: int
    blocks: tuple[tuple[int, int, int, int], ...]


MCUNET_5FPS = NetSpec(
    stem=16,
    blocks=(
        (3, 1, 8, 1),
        (3, 4, 16, 2),
        (3, 3, 16, 1),
        (7, 3, 24, 2),
        (3, 5, 24, 1),
        (3, 5, 40, 2),
        (7, 4, 40, 1),
        (5, 4, 48, 1),
        (3, 3, 48, 1),
        (3, 4, 48, 1),
        (7, 5, 96, 2),
        (5, 4, 96, 1),
        (5, 4, 96, 1),
        (3, 6, 160, 1),
    ),
)

# MobileNetV2 at width 0.35 without its last 1x1 convolution.
MBV2_035 = NetSpec(
    stem=16,
    blocks=(
        (3, 1, 8, 1),
        (3, 6, 8, 2),
        (3, 6, 8, 1),
        (3, 6, 16, 2),
        (3, 6, 16, 1),
        (3, 6, 16, 1),
        (3, 6, 24, 2),
        (3, 6, 24, 1),
        (3, 6, 24, 1),
        (3, 6, 24, 1),
        (3, 6, 32, 1),
        (3, 6, 32, 1),
        (3, 6, 32, 1),
        (3, 6, 56, 2),
        (3, 6, 56, 1),
        (3, 6, 56, 1),
        (3, 6, 112, 1),
    ),
)

PROXYLESS_03 = NetSpec(
    stem=16,
    blocks=(
        (3, 1, 8, 1),
        (5, 3, 16, 2),
        (3, 3, 16, 1),
        (7, 3, 16, 2),
        (3, 3, 16, 1),
        (5, 3, 16, 1),
        (5, 3, 16, 1),
        (7, 6, 24, 2),
        (5, 3, 24, 1),
        (5, 3, 24, 1),
        (5, 3, 24, 1),
        (5, 6, 32, 1),
        (5, 3, 32, 1),
        (5, 3, 32, 1),
        (5, 3, 32, 1),
        (7, 6, 64, 2),
        (7, 6, 64, 1),
        (7, 3, 64, 1),
        (7, 3, 64, 1),
        (7, 6, 96, 1),
    ),
)

# Expansion, channels at width 1, blocks, stride of the first (table 2 of arXiv 1801.04381).
MOBILENET_V2_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)

RESNET50_DEPTHS = (3, 4, 6, 3)


def round_channels(channels: float, divisor: int = 8) -> int:
    """Round to a multiple of `divisor`, but not below nine tenths of the channels."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded
