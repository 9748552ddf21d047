"""Published weights as float models: tiny-training's int8 nets and the CIFAR-10 ResNets.

The files are .npz archives named by the caller; nothing is downloaded. An int8 net becomes the
float net that computes the same up to rounding: weights times their scales, batch norms already
folded into biases, and each fused clamp as a `Hardtanh` over the range of the int8 output.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pockengine.errors import ImportModelError
from pockengine.models.mcunet import ConvUnit, MCUNet
from pockengine.models.resnet import CifarResNet
from pockengine.models.specs import MBV2_035, MCUNET_5FPS, PROXYLESS_03

INT8_SPECS = {
    "mcunet-5fps": MCUNET_5FPS,
    "mbv2-w0.35": MBV2_035,
    "proxyless-w0.3": PROXYLESS_03,
}


def load_int8(path: Path) -> MCUNet:
    """Load `mcunet-5fps.npz`, `mbv2-w0.35.npz` or `proxyless-w0.3.npz`: 128x128, 1000 classes.

    Inputs are pixels / 127.5 - 1. Raises ImportModelError for any other file name.
    """
    spec = INT8_SPECS.get(path.stem)
    if spec is None:
        raise ImportModelError(
            f"{path}: no int8 net of this name; known are {', '.join(INT8_SPECS)}"
        )
    model = MCUNet(spec, norm=False)
    with np.load(path, allow_pickle=False) as archive:
        for layer in json.loads(bytes(archive["meta_json"])):
            name = layer["name"]
            if f"{name}.weight" in archive:
                arrays = (archive[f"{name}.{part}"] for part in ("weight", "bias", "w_scales"))
                _fill(model.get_submodule(name), layer, *arrays)
    return model.eval()


def _fill(unit: nn.Module, layer: dict[str, Any], weight: Any, bias: Any, scales: Any) -> None:
    """Set one convolution or the classifier from its int8 weight, int32 bias and scales."""
    weight = weight.astype(np.float32) * scales.reshape(-1, 1, 1, 1)
    bias = bias.astype(np.float32) * (np.float32(layer["x_scale"]) * scales)
    if isinstance(unit, ConvUnit):
        low, high = ((edge - layer["y_zero"]) * layer["y_scale"] for edge in (-128, 127))
        unit.act = nn.Hardtanh(low, high)
        target = unit.conv
    else:
        target = unit
    with torch.no_grad():
        target.weight.copy_(torch.from_numpy(weight).reshape(target.weight.shape))
        target.bias.copy_(torch.from_numpy(bias))


def load_cifar_resnet(path: Path) -> CifarResNet:
    """Load `resnet<depth>-<hash>.npz`: float weights under this project's names."""
    depth = path.stem.removeprefix("resnet").split("-")[0]
    if not (path.stem.startswith("resnet") and depth.isdigit()):
        raise ImportModelError(f"{path}: expected a file named resnet<depth>-<hash>.npz")
    model = CifarResNet(int(depth))
    with np.load(path, allow_pickle=False) as archive:
        state = {name: torch.from_numpy(archive[name]) for name in archive.files}
    missing, unexpected = model.load_state_dict(state, strict=False)
    wrong = unexpected + [name for name in missing if not name.endswith("num_batches_tracked")]
    if wrong:
        raise ImportModelError(f"{path}: names that do not fit ResNet-{depth}: {', '.join(wrong)}")
    return model.eval()
