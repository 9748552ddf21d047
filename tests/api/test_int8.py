"""`quantize=`: a PyTorch model trains in int8 and exports its weights as floats."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import pockengine
from pockengine.backends.registry import open_session
from pockengine.errors import CompileError


class Net(nn.Module):
    """Two convolutions with batch norms, the second with a skip connection, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6())
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, 3, H, W] to [N, 3]."""
        x = self.stem(x)
        return self.head((x + self.block(x)).mean((2, 3)))


def used_net() -> Net:
    """Return a net with updated running statistics."""
    torch.manual_seed(0)
    net = Net()
    for _ in range(20):
        net(torch.randn(8, 3, 8, 8) + 0.5)
    return net.eval()


def test_a_model_trains_in_int8_and_exports_its_weights(tmp_path: Path) -> None:
    net, rng = used_net(), np.random.default_rng(0)
    x = rng.standard_normal((8, 3, 8, 8)).astype(np.float32) + np.float32(0.5)
    compiled = pockengine.compile(
        net,
        (torch.zeros(4, 3, 8, 8),),
        loss="cross_entropy",
        quantize=pockengine.Int8({"x": x}),
        folder=tmp_path / "artifact",
    )
    with open_session(compiled.artifact) as session:
        for _ in range(3):
            session.train_step({"x": x[:4], "target": np.arange(4) % 3}, lr=0.01)
        (logits,) = session.predict({"x": x[:4]}).values()
        net.load_state_dict(compiled.state_dict(session))
        files = pockengine.load(tmp_path / "artifact").weights(session)
    with torch.no_grad():
        expected = net(torch.from_numpy(x[:4])).numpy()
    np.testing.assert_allclose(logits, expected, atol=0.05 * np.abs(expected).max())
    assert files["head.weight"].dtype == np.float32


def test_a_range_of_sizes_is_refused() -> None:
    with pytest.raises(CompileError, match="leave sizes= out"):
        pockengine.compile(
            used_net(),
            (torch.zeros(4, 3, 8, 8),),
            loss="cross_entropy",
            quantize=pockengine.Int8({"x": np.ones((4, 3, 8, 8))}),
            sizes=pockengine.Range("batch", 1, 4, {"x": 0, "target": 0}, (2, 4)),
        )


def test_samples_are_keyed_by_input_names() -> None:
    with pytest.raises(CompileError, match=r'calibration is a list; give rows .* \{"x": samples\}'):
        pockengine.Int8([np.zeros((4, 3), np.float32)])
