"""Published weights, imported and evaluated by our oracle on real pictures.

The pictures and weights are not part of the project: POCKENGINE_DATA names the folder.
"""

import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pockengine.compiler.ir.evaluate import run
from pockengine.frontends.torch.model import from_torch
from pockengine.models.pretrained import load_cifar_resnet, load_int8

LABELS = {"cat": {281, 282, 285}, "bird": {19}, "sunflower": {985}}
"""ImageNet classes that count as correct: three kinds of cat, chickadee, daisy."""

CIFAR_MEAN, CIFAR_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture
def data() -> Path:
    folder = os.environ.get("POCKENGINE_DATA")
    if not folder:
        pytest.skip("POCKENGINE_DATA is not set; it names the folder of weights and pictures")
    return Path(folder)


def bitmap(path: Path) -> torch.Tensor:
    """Read a 24-bit bitmap (rows bottom up, blue first, padded to 4 bytes): (3, H, W) floats."""
    raw = path.read_bytes()
    start, width, height = (int.from_bytes(raw[at : at + 4], "little") for at in (10, 18, 22))
    assert int.from_bytes(raw[28:30], "little") == 24
    stride = -(-3 * width // 4) * 4
    rows = np.frombuffer(raw, np.uint8, stride * height, start).reshape(height, stride)
    pixels = rows[::-1, : 3 * width].reshape(height, width, 3)[..., ::-1]
    return torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1)


def square(picture: torch.Tensor, side: int) -> torch.Tensor:
    """Crop the middle and scale it: (1, 3, side, side)."""
    _, height, width = picture.shape
    size = min(height, width)
    top, left = (height - size) // 2, (width - size) // 2
    middle = picture[None, :, top : top + size, left : left + size]
    return nn.functional.interpolate(middle, (side, side), mode="bilinear", antialias=True)


@pytest.mark.parametrize("net", ["mcunet-5fps", "mbv2-w0.35", "proxyless-w0.3"])
def test_dequantized_net_recognizes_photographs(data: Path, net: str) -> None:
    model = load_int8(data / "weights" / "mcunet_int8" / f"{net}.npz")
    graph = from_torch(model, (torch.zeros(1, 3, 128, 128),))

    for name, classes in LABELS.items():
        picture = square(bitmap(data / "samples" / f"{name}.bmp"), 128) / 127.5 - 1
        logits = run(graph, {"x": picture.numpy()})["output"]
        assert int(logits.argmax()) in classes


def test_cifar_resnet_recognizes_test_pictures(data: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the CIFAR-10 pictures are JPEG: needs Pillow")
    model = load_cifar_resnet(data / "weights" / "resnet_cifar10" / "resnet20-12fca82f.npz")
    count = 200
    with np.load(data / "vision" / "cifar10" / "cifar10_test_jpeg.npz") as archive:
        jpeg, offset, label = archive["jpeg"], archive["offset"], archive["label"][:count]
    files = [jpeg[offset[i] : offset[i + 1]].tobytes() for i in range(count)]
    pixels = np.stack([np.asarray(image.open(io.BytesIO(file))) for file in files]) / 255
    pictures = ((pixels - CIFAR_MEAN) / CIFAR_STD).astype(np.float32).transpose(0, 3, 1, 2)
    graph = from_torch(model, (torch.zeros(count, 3, 32, 32),))

    logits = run(graph, {"x": np.ascontiguousarray(pictures)})["output"]

    # 91.7 % on the published pixels; these pictures were compressed to 920 bytes each.
    assert (logits.argmax(1) == label).mean() >= 0.75
