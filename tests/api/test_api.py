"""`pockengine.compile` as in a user's first ten lines."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import pockengine
from pockengine.backends.artifact import load_artifact
from pockengine.devices import load_device
from pockengine.errors import (
    CompileError,
    DeviceError,
    ImportModelError,
    RuntimeFailure,
    SchemeError,
)
from pockengine.tests.backends.every import EVERY_BACKEND
from pockengine.tests.frontends.torch.nets import convolution_and_head

LOSS = "cross_entropy"


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(8, 1, 6, 6), torch.randint(0, 3, (8,))


@EVERY_BACKEND
def test_tuned_weights_load_into_the_module(tmp_path: Path, device: Path | str) -> None:
    net, (x, y) = convolution_and_head(), batch()
    compiled = pockengine.compile(
        net,
        (x,),
        loss=LOSS,
        optimizer=pockengine.Adam(),
        device=device,
        folder=tmp_path / "net",
    )
    twin = convolution_and_head()
    optimizer = torch.optim.Adam(twin.parameters(), 0.01)
    with compiled.session(threads=2) as session:
        for _ in range(5):
            ours = session.train_step({"input": x.numpy(), "target": y.numpy()}, lr=0.01)["loss"]
            optimizer.zero_grad()
            theirs = nn.functional.cross_entropy(twin(x), y)
            theirs.backward()
            optimizer.step()
            assert float(ours) == pytest.approx(theirs.item(), rel=1e-4)
        net.load_state_dict(compiled.state_dict(session))
        logits = session.predict({"input": x.numpy()})["output"]
    np.testing.assert_allclose(net(x).detach().numpy(), logits, rtol=1e-4, atol=1e-5)
    assert load_artifact(tmp_path / "net").name == compiled.artifact.name


@EVERY_BACKEND
def test_frozen_parameters_are_exported_unchanged(device: Path | str) -> None:
    net, (x, y) = convolution_and_head(), batch()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    compiled = pockengine.compile(net, (x,), loss=LOSS, scheme="head-only", device=device)
    with compiled.session() as session:
        session.train_step({"input": x.numpy(), "target": y.numpy()}, lr=0.1)
        net.load_state_dict(compiled.state_dict(session), strict=False)
    changed = {n for n, value in net.state_dict().items() if not torch.equal(value, before[n])}
    assert changed == {"3.weight", "3.bias"}


@pytest.mark.skipif(not load_device("host").cpu.bf16, reason="this CPU has no bf16 products")
def test_bf16_products_train_as_f32() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32))
    x, y = torch.randn(48, 64), torch.randint(0, 32, (48,))
    losses = []
    for bf16 in (False, True):
        with pockengine.compile(net, (x,), loss=LOSS, bf16=bf16).session() as session:
            feed = {"input": x.numpy(), "target": y.numpy()}
            losses.append([float(session.train_step(feed, lr=0.5)["loss"]) for _ in range(10)])
    plain, rounded = map(np.array, losses)
    assert plain[-1] < 0.8 * plain[0]
    assert 1e-6 < np.abs(rounded / plain - 1).max() < 1e-2


def test_errors_name_the_argument() -> None:
    net, (x, _) = convolution_and_head(), batch()
    with pytest.raises(
        DeviceError, match="unknown device 'pi9'; known devices: adreno-740, alif-e3"
    ):
        pockengine.compile(net, (x,), loss=LOSS, device="pi9")
    with pytest.raises(SchemeError, match="unknown scheme 'quick'"):
        pockengine.compile(net, (x,), loss=LOSS, scheme="quick")
    with pytest.raises(ImportModelError, match="unknown loss 'hinge'"):
        pockengine.compile(net, (x,), loss="hinge")
    with pytest.raises(CompileError, match="reaches an arena of"):
        pockengine.compile(net, (x,), loss=LOSS, memory_budget=64)


def test_a_solver_without_a_budget_is_an_error() -> None:
    pytest.importorskip("scipy")
    net, (x, _) = convolution_and_head(), batch()
    with pytest.raises(CompileError, match="within a memory_budget; give one, or leave solver"):
        pockengine.compile(net, (x,), loss=LOSS, solver_seconds=5)


def test_wrong_inputs_of_a_step_are_reported() -> None:
    net, (x, y) = convolution_and_head(), batch()
    with pockengine.compile(net, (x,), loss=LOSS).session() as session:
        with pytest.raises(RuntimeFailure, match="input"):
            session.train_step({"input": x.numpy()[:4], "target": y.numpy()}, lr=0.1)
        with pytest.raises(RuntimeFailure, match="target"):
            session.train_step({"input": x.numpy()}, lr=0.1)
        with pytest.raises(RuntimeFailure, match="label"):
            session.train_step({"input": x.numpy(), "target": y.numpy(), "label": y.numpy()}, 0.1)


def test_unknown_names_of_the_package_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'fit'"):
        _ = pockengine.fit
