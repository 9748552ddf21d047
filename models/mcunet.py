"""MCUNet-style nets: inverted residuals with individual kernel sizes and expansions.

A net is data (`NetSpec`): specs.py has mit-han-lab/tiny-training's three microcontroller nets, and
`pretrained.py` loads their published int8 weights as floats.
"""

import torch
from torch import nn

from pockengine.models.layers import global_average, initialize
from pockengine.models.specs import MCUNET_5FPS, NetSpec


class ConvUnit(nn.Module):
    """Convolution, batch norm (or a bias instead), activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        *,
        norm: bool,
        act: nn.Module,
    ) -> None:
        """Convolve, keeping the resolution before the stride; `norm=False` stands for a folded
        batch norm.
        """
        super().__init__()
        pad = (kernel - 1) // 2
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, pad, groups=groups, bias=not norm)
        self.bn = nn.BatchNorm2d(outputs) if norm else nn.Identity()
        self.act = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        return self.act(self.bn(self.conv(x)))


class Block(nn.Module):
    """Inverted residual: 1x1 up (unless expansion is 1), depthwise, linear 1x1 down."""

    def __init__(
        self, inputs: int, kernel: int, expansion: int, outputs: int, stride: int, *, norm: bool
    ) -> None:
        """Take channel counts; there is a skip connection if the shapes agree."""
        super().__init__()
        hidden = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        self.pointwise1: nn.Module = nn.Identity()
        if expansion != 1:
            self.pointwise1 = ConvUnit(inputs, hidden, norm=norm, act=nn.ReLU6())
        self.depthwise = ConvUnit(
            hidden, hidden, kernel, stride, groups=hidden, norm=norm, act=nn.ReLU6()
        )
        self.pointwise2 = ConvUnit(hidden, outputs, norm=norm, act=nn.Identity())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        y = self.pointwise2(self.depthwise(self.pointwise1(x)))
        return x + y if self.residual else y


class MCUNet(nn.Module):
    """The net described by a `NetSpec`: 3x3 stem of stride 2, blocks, global mean, linear."""

    def __init__(self, spec: NetSpec = MCUNET_5FPS, classes: int = 1000, norm: bool = True) -> None:
        """Build with batch norms, or with biases if `norm` is False, as after folding."""
        super().__init__()
        self.first_conv = ConvUnit(3, spec.stem, 3, 2, norm=norm, act=nn.ReLU6())
        channels = spec.stem
        blocks = []
        for kernel, expansion, outputs, stride in spec.blocks:
            blocks.append(
                Block(channels, kernel, expansion, outputs=outputs, stride=stride, norm=norm)
            )
            channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, classes)
        initialize(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map pictures [N, 3, H, W] to logits [N, classes]."""
        return self.classifier(global_average(self.blocks(self.first_conv(x))))
