"""Trained bf16 weights in generated C: steps equal PyTorch's within an ulp, and are exported."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import pockengine
from pockengine.compiled import Compiled

RATE = 0.05
LARGE = ("0.weight", "2.weight")


def model() -> nn.Sequential:
    """Return two layers whose weights are exact in bf16."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
    for name in LARGE:
        weight = net.get_parameter(name)
        weight.data = weight.data.bfloat16().float()
    return net


def compiled_by(scheme: object) -> Compiled:
    return pockengine.compile(
        model(),
        (torch.zeros(4, 64),),
        loss="mse",
        scheme=scheme,
        storage=pockengine.Storage(trained="bf16"),
    )


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((4, 64)).astype(np.float32) for name in ("x", "target")}


def feed(compiled: Compiled) -> dict[str, np.ndarray]:
    names = [name for name in compiled.artifact.entries["train"].inputs if name not in CONTROLS]
    return dict(zip(names, batch().values(), strict=True))


CONTROLS = ("lr", "step", "seed")


def test_a_step_equals_pytorch_up_to_rounding(tmp_path: Path) -> None:
    compiled, net = compiled_by("full"), model()
    params = compiled.artifact.params
    assert {params[name].type.dtype.value for name in LARGE} == {"bf16"}
    with compiled.session() as session:
        loss = float(session.train_step(feed(compiled), RATE)["loss"])
        session.save(tmp_path / "saved")
        found = compiled.state_dict(session)
    x, target = map(torch.from_numpy, batch().values())
    expected = nn.functional.mse_loss(net(x), target)
    expected.backward()
    torch.optim.SGD(net.parameters(), RATE).step()

    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for name, tensor in net.state_dict().items():
        place = tensor.abs() * 2**-7 if name in LARGE else 0
        assert ((found[name] - tensor).abs() <= place + 1e-6).all(), name
    assert (found["0.weight"] == found["0.weight"].bfloat16().float()).all()
    net.load_state_dict(found, strict=True)
    torch.testing.assert_close(compiled.state_dict(tmp_path / "saved"), found, rtol=0, atol=0)


def test_bf16_adapters_round_trip_through_peft(tmp_path: Path) -> None:
    compiled = compiled_by(pockengine.lora(64, 8, ["0.weight"], ["2.bias"]))
    params = compiled.artifact.params
    assert {params[f"0.weight.lora_{part}"].type.dtype.value for part in "AB"} == {"bf16"}
    with compiled.session() as session, compiled.session() as other:
        for _ in range(2):
            session.train_step(feed(compiled), RATE)
        compiled.save_adapters(session, tmp_path / "adapter")
        compiled.load_adapters(other, tmp_path / "adapter")
        for name, array in session.params().items():
            np.testing.assert_array_equal(other.get_param(name), array, err_msg=name)


class Mixture(nn.Module):
    """Three experts of 64 x 64; a row's last element chooses its expert."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.experts = nn.Parameter((torch.randn(3, 64, 64) / 8).bfloat16().float())

    def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        return (x[:, None, :] @ self.experts[chosen])[:, 0, :]


def test_experts_train_in_bf16() -> None:
    net, chosen = Mixture(), np.array([0, 2, 2, 0])
    compiled = pockengine.compile(
        Mixture(),
        (torch.zeros(4, 64), torch.zeros(4, dtype=torch.int64)),
        loss="mse",
        scheme="full",
        storage=pockengine.Storage(trained="bf16"),
    )
    assert compiled.artifact.params["experts"].type.dtype.value == "bf16"
    x, target = batch().values()
    with compiled.session() as session:
        loss = session.train_step({"x": x, "chosen": chosen, "target": target}, 1.0)["loss"]
        found = compiled.state_dict(session)["experts"]
    answer = net(torch.from_numpy(x), torch.from_numpy(chosen))
    expected = nn.functional.mse_loss(answer, torch.from_numpy(target))
    expected.backward()
    start = net.experts.detach().clone()
    torch.optim.SGD(net.parameters(), 1.0).step()
    trained = net.experts.detach()
    assert float(loss) == pytest.approx(expected.item(), rel=1e-5)
    assert ((found - trained).abs() <= trained.abs() * 2**-7 + 1e-6).all()
    assert torch.equal(found[1], start[1])
    assert (found[[0, 2]] != start[[0, 2]]).any(-1).any(-1).all()
