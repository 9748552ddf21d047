"""LoRA on 1D and 3D convolutions compared with peft."""

from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from torch import nn
from torch.nn import functional

import pockengine
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.choice import FULL, parse_choice
from pockengine.compiler.sparse.lora import with_adapters
from pockengine.errors import SchemeError
from pockengine.frontends.torch.model import from_torch

RATE, STEPS = 0.3, 5


def net(dimensions: int) -> nn.Module:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    conv = (nn.Conv1d, nn.Conv3d)[dimensions // 3]
    return nn.Sequential(
        conv(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        conv(8, 6, 2),
        nn.Flatten(),
        nn.Linear(6 * 2**dimensions, 3),
    )


def scheme() -> Scheme:
    adapted = {f"{place}.weight": {"lora": 2, "alpha": 6} for place in (0, 2)}
    choices = {name: parse_choice(value, name) for name, value in adapted.items()}
    return Scheme("adapters", (*choices.items(), ("4.*", FULL)))


def train_theirs(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> list[float]:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, losses = torch.optim.SGD(trained, RATE), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("dimensions", [1, 3])
def test_adapters_of_1d_and_3d_convolutions_train_as_in_peft(
    dimensions: int, tmp_path: Path
) -> None:
    x, target = torch.randn(4, 3, *[6] * dimensions), torch.tensor([0, 1, 2, 1])
    data = {"input": x.numpy(), "target": target.numpy()}
    compiled = pockengine.compile(net(dimensions), (x,), loss="cross_entropy", scheme=scheme())
    with compiled.session() as session:
        compiled.save_adapters(session, tmp_path / "start")
        ours = [float(session.train_step(data, lr=RATE)["loss"]) for _ in range(STEPS)]
        logits = session.predict({"input": x.numpy()})["output"]
        compiled.save_adapters(session, tmp_path / "end")
        merged = compiled.state_dict(session)

    theirs = PeftModel.from_pretrained(net(dimensions), tmp_path / "start", is_trainable=True)
    losses = train_theirs(theirs, x, target)
    np.testing.assert_allclose(ours, losses, rtol=1e-4)
    assert losses[-1] < 0.9 * losses[0]

    loaded = PeftModel.from_pretrained(net(dimensions), tmp_path / "end").eval()
    np.testing.assert_allclose(loaded(x).detach().numpy(), logits, rtol=1e-4, atol=1e-5)
    for name, tensor in loaded.merge_and_unload().state_dict().items():
        torch.testing.assert_close(merged[name], tensor, rtol=1e-4, atol=1e-5)

    theirs.save_pretrained(tmp_path / "theirs")
    with compiled.session() as session:
        compiled.load_adapters(session, tmp_path / "theirs")
        again = session.predict({"input": x.numpy()})["output"]
    np.testing.assert_allclose(again, theirs(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [2, 6])
def test_grouped_convolutions_of_lines_have_no_adapter(groups: int) -> None:
    graph = from_torch(nn.Sequential(nn.Conv1d(6, 6, 3, groups=groups)), (torch.randn(2, 6, 7),))
    choice = parse_choice({"lora": 2, "alpha": 2}, "0.weight")
    with pytest.raises(SchemeError, match=f"its convolution has {groups} groups"):
        with_adapters(graph, Scheme("grouped", (("0.weight", choice),)))
