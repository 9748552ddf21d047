"""The published int8 nets in integer arithmetic, bit for bit.

The reference here follows the code of their paper: exact integer sums, plus the bias, times one
float per channel, rounded half to even, plus the zero point, then clamped.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.passes.integers.hold_integers import HoldIntegers
from pockengine.compiler.passes.integers.integer_arithmetic import IntegerArithmetic
from pockengine.models.pretrained_int8 import int8_graph

NETS = ["mcunet-5fps", "mbv2-w0.35", "proxyless-w0.3"]


def file_of(net: str) -> Path:
    path = Path(os.environ.get("POCKENGINE_DATA", "")) / "weights" / "mcunet_int8" / f"{net}.npz"
    if not path.is_file():
        pytest.skip("needs weights of POCKENGINE_DATA")
    return path


def rounded(real: torch.Tensor, zero: int) -> torch.Tensor:
    return (torch.round(real) + zero).clamp(-128, 127)


def convolved(x: torch.Tensor, layer: Mapping[str, Any], arrays: Any) -> torch.Tensor:
    """Apply one layer to integers in double precision, which represents every sum exactly."""
    name = layer["name"]
    weight, bias = (
        torch.from_numpy(arrays[f"{name}.{part}"]).double() for part in ("weight", "bias")
    )
    pad = (weight.shape[-1] - 1) // 2
    stride, groups = layer.get("stride", 1), layer.get("groups", 1)
    sums = functional.conv2d(x - layer["x_zero"], weight, bias, stride, pad, 1, groups)
    unit = np.float32(layer["x_scale"]) * arrays[f"{name}.w_scales"].reshape(-1).astype(np.float32)
    factor = torch.from_numpy(unit / np.float32(layer["y_scale"])).reshape(1, -1, 1, 1)
    return rounded((sums.float() * factor).double(), layer["y_zero"])


def reference(path: Path, picture: np.ndarray) -> np.ndarray:
    """Return the published net's logits for pictures."""
    with np.load(path, allow_pickle=False) as arrays:
        layers = {layer["name"]: layer for layer in json.loads(bytes(arrays["meta_json"]))}
        first = layers["first_conv"]
        scale = np.float32(first["x_scale"])
        x = rounded(torch.from_numpy(picture / scale).double(), first["x_zero"])
        x = convolved(x, first, arrays)
        for number in range(sum(name.endswith(".depthwise") for name in layers)):
            y, names = (
                x,
                (f"blocks.{number}.{part}" for part in ("pointwise1", "depthwise", "pointwise2")),
            )
            for name in names:
                if name in layers:
                    last = layers[name]
                    y = convolved(y, last, arrays)
            skip = layers.get(f"blocks.{number}.residual")
            x = (
                y
                if skip is None
                else summed(
                    (x, skip["x_scale"], skip["x_zero"]), (y, last["y_scale"], last["y_zero"]), skip
                )
            )
        head = layers["classifier"]
        mean = (x - head["x_zero"]).mean((2, 3), keepdim=True)
        logits = convolved(rounded(mean, head["x_zero"]), head, arrays)
        return ((logits - head["y_zero"]).float() * np.float32(head["y_scale"])).flatten(1).numpy()


def summed(one: Any, other: Any, skip: Mapping[str, Any]) -> torch.Tensor:
    """Dequantize two integer tensors to f32, add them, and round to the sum's range."""
    reals = [(x - zero).float() * np.float32(scale) for x, scale, zero in (one, other)]
    return rounded(((reals[0] + reals[1]) / np.float32(skip["y_scale"])).double(), skip["y_zero"])


@pytest.mark.parametrize("net", NETS)
def test_the_forward_pass_equals_the_published_net(net: str) -> None:
    path = file_of(net)
    graph = int8_graph(path, loss=None)
    HoldIntegers().run(graph)
    IntegerArithmetic(rounding="float").run(graph)
    products = [node for node in graph.nodes if node.op in ("conv2d", "matmul")]
    assert all(value.dtype.value == "i8" for node in products for value in node.operands)
    picture = np.random.default_rng(0).uniform(-1, 1, (1, 3, 128, 128)).astype(np.float32)

    logits = run(graph, {"x": picture})["output"]

    np.testing.assert_array_equal(logits, reference(path, picture))
