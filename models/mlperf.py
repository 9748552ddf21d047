"""MLPerf Tiny's ResNet-8 for CIFAR-10 (arXiv 2106.07597), with its published Keras weights.

Inputs are pixels from 0 to 255, unnormalized. In strided blocks the first convolution pads only
below and to the right, as TensorFlow's "same" does.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from pockengine.errors import ImportModelError, reason_of
from pockengine.models.layers import global_average

EPS = 1e-3


class StridedBlock(nn.Module):
    """Two 3x3 convolutions and a skip connection, with a convolution if the block widens."""

    def __init__(self, inputs: int, planes: int) -> None:
        """Take channel counts; a block that widens strides by 2."""
        super().__init__()
        self.stride = 1 if inputs == planes else 2
        self.conv1 = nn.Conv2d(inputs, planes, 3, self.stride, padding=2 - self.stride)
        self.bn1 = nn.BatchNorm2d(planes, EPS)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(planes, EPS)
        self.shortcut = None if inputs == planes else nn.Conv2d(inputs, planes, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, inputs, H, W] to [N, planes, H / stride, W / stride]."""
        padded = x if self.stride == 1 else functional.pad(x, (0, 1, 0, 1))
        y = functional.relu(self.bn1(self.conv1(padded)))
        y = self.bn2(self.conv2(y))
        return functional.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet8(nn.Module):
    """Three blocks of 16, 32 and 64 channels: 78 thousand parameters."""

    def __init__(self, classes: int = 10) -> None:
        """Take the number of classes."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(16, EPS)
        self.layer1 = nn.Sequential(StridedBlock(16, 16))
        self.layer2 = nn.Sequential(StridedBlock(16, 32))
        self.layer3 = nn.Sequential(StridedBlock(32, 64))
        self.linear = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map pictures [N, 3, 32, 32] to logits [N, classes]."""
        x = functional.relu(self.bn1(self.conv1(x)))
        return self.linear(global_average(self.layer3(self.layer2(self.layer1(x)))))


def load_resnet8(path: Path) -> ResNet8:
    """Load `ic_resnet8.h5`; ImportModelError if it holds other layers, or h5py is missing."""
    try:
        import h5py
    except ImportError as error:
        raise ImportModelError(f"{path} is read by the package h5py (pip install h5py)") from error
    model = ResNet8()
    try:
        with h5py.File(path, "r") as file:
            for keras, module in layers_of(model):
                arrays = file[f"model_weights/{keras}/{keras}"]
                for name, target in arrays_of(module):
                    _fill(target, np.array(arrays[name]))
    except (OSError, KeyError, RuntimeError) as error:
        raise ImportModelError(
            f"{path} holds no ResNet-8 of MLPerf Tiny: {reason_of(error)}"
        ) from error
    return model.eval()


def layers_of(model: ResNet8) -> Iterator[tuple[str, nn.Module]]:
    """Yield Keras's and our name of each layer; Keras numbers each kind separately."""
    counts = {"conv2d": 0, "batch_normalization": 0}
    blocks = [block for stage in (model.layer1, model.layer2, model.layer3) for block in stage]
    modules = [model.conv1, model.bn1]
    for block in blocks:
        modules += [block.conv1, block.bn1, block.conv2, block.bn2]
        modules += [] if block.shortcut is None else [block.shortcut]
    for module in modules:
        kind = "conv2d" if isinstance(module, nn.Conv2d) else "batch_normalization"
        yield f"{kind}_{counts[kind]}" if counts[kind] else kind, module
        counts[kind] += 1
    yield "dense", model.linear


def arrays_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the arrays of a layer by Keras's names."""
    if isinstance(module, nn.BatchNorm2d):
        assert module.running_mean is not None  # statistics are tracked
        assert module.running_var is not None
        yield "gamma:0", module.weight
        yield "beta:0", module.bias
        yield "moving_mean:0", module.running_mean
        yield "moving_variance:0", module.running_var
    elif isinstance(module, nn.Conv2d | nn.Linear):
        assert module.bias is not None
        yield "kernel:0", module.weight
        yield "bias:0", module.bias


def _fill(target: torch.Tensor, array: np.ndarray) -> None:
    """Copy an array into a tensor: kernels [H, W, in, out] or [in, out] become outputs first."""
    axes = {4: (3, 2, 0, 1), 2: (1, 0)}.get(array.ndim, (0,))
    with torch.no_grad():
        target.copy_(torch.from_numpy(np.ascontiguousarray(array.transpose(axes))))
