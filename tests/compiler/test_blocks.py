"""Blocks by the names of parameters, as other frameworks' models have them."""

import pytest

from pockengine.compiler.sparse.blocks import group_blocks
from pockengine.compiler.sparse.families import recognize

NORM = ("weight", "bias")


def layers(*paths: str) -> list[str]:
    """Return the names of layers; a norm's path ends in `~`."""
    kinds = {True: NORM, False: ("weight",)}
    return [f"{path.rstrip('~')}.{leaf}" for path in paths for leaf in kinds[path.endswith("~")]]


def inside(block: str, *paths: str) -> tuple[str, ...]:
    return tuple(f"{block}.{path}" for path in paths)


UNIT = ("conv", "bn~")
CASES: dict[str, list[tuple[str, ...]]] = {
    "stages of blocks": [
        ("stem.0", "stem.1~"),
        inside("stages.0.blocks.0", "conv_dw", "norm~", "fc1"),
        inside("stages.0.blocks.1", "conv_dw", "norm~", "fc1"),
        inside("stages.1.blocks.0", "conv_dw", "norm~", "fc1"),
        ("head.norm~", "head.fc"),
    ],
    "numbers with letters": [
        inside("stem", *UNIT),
        inside("s1.b1", "conv1.conv", "conv1.bn~", "conv2.conv", "conv2.bn~"),
        inside("s1.b2", "conv1.conv", "conv1.bn~", "conv2.conv", "conv2.bn~"),
        inside("s2.b1", "conv1.conv", "conv1.bn~", "conv2.conv", "conv2.bn~"),
        ("head.fc",),
    ],
    "dense layers": [
        ("features.conv0", "features.norm0~"),
        inside("features.denseblock1.denselayer1", "norm1~", "conv1", "norm2~", "conv2"),
        inside("features.denseblock1.denselayer2", "norm1~", "conv1", "norm2~", "conv2"),
        inside("features.denseblock2.denselayer1", "norm1~", "conv1", "norm2~", "conv2"),
        ("features.norm5~", "classifier"),
    ],
    "branches": [
        inside("Conv2d_1a_3x3", *UNIT),
        inside("Conv2d_2a_3x3", *UNIT),
        inside("Mixed_5b", "branch1x1.conv", "branch1x1.bn~", "branch_pool.conv"),
        inside("Mixed_5c", "branch1x1.conv", "branch1x1.bn~", "branch_pool.conv"),
        ("fc",),
    ],
    "layers beside a residual branch": [
        ("stem.0", "stem.2~"),
        inside("blocks.0", "0.fn.0", "0.fn.2~", "1", "3~"),
        inside("blocks.1", "0.fn.0", "0.fn.2~", "1", "3~"),
        ("head",),
    ],
    "attention and perceptrons in turn": [
        ("embedding",),
        inside("layers.0", "0.norm~", "0.to_q", "1.net.0~", "1.net.1"),
        inside("layers.1", "0.norm~", "0.to_q", "1.net.0~", "1.net.1"),
        ("norm~", "linear"),
    ],
    "a convolution before the head": [
        inside("blocks.0.0", "conv_pw", "bn1~", "conv_dw", "bn2~"),
        inside("blocks.0.1", "conv_pw", "bn1~", "conv_dw", "bn2~"),
        ("conv_head", "bn2~"),
        ("classifier",),
    ],
    "a head of several layers": [
        inside("net.stages.0.0", *UNIT),
        inside("net.stages.0.1", *UNIT),
        inside("net.head", "in_conv.conv", "in_conv.norm~", "pre.linear", "classifier"),
    ],
    "two heads": [
        inside("network.0", "0.norm1~", "0.attn.v", "0.mlp.fc1"),
        inside("network.2", "0.norm1~", "0.attn.qkv", "0.mlp.fc1"),
        ("norm~", "aux_head", "head"),
    ],
    "two heads of a known family": [
        inside("blocks.0", "norm1~", "attn.qkv", "mlp.fc1"),
        inside("blocks.1", "norm1~", "attn.qkv", "mlp.fc1"),
        ("norm~", "head", "head_dist"),
    ],
    "layers in turn": [("conv1", "bn1~"), ("conv2", "bn2~"), ("fc",)],
    "a head that is not last": [("rpn.head.conv",), ("rpn.head.box",), ("roi.fc",), ("roi.box",)],
}


@pytest.mark.parametrize("case", CASES)
def test_blocks_are_found_by_names(case: str) -> None:
    blocks = [layers(*paths) for paths in CASES[case]]
    names = [name for block in blocks for name in block]
    vectors = set(layers(*(p for paths in CASES[case] for p in paths if p.endswith("~"))))
    assert group_blocks(names, recognize(names), vectors) == blocks
