"""LoRA in generated C compared with the same adapters written by hand in PyTorch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

import pockengine
from pockengine.compiled import Compiled
from pockengine.errors import ArtifactError, CompileError
from pockengine.tests.backends.every import EVERY_BACKEND

RATE = 0.02
SCHEME = pockengine.lora(4, 8, ["mix.*.weight", "stem.weight"], ["head.*"])


class Net(nn.Module):
    """A convolution, then attention over its pixels, with projection names that presets match."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.mix = nn.ModuleDict({name: nn.Linear(16, 16) for name in ("query", "key", "value")})
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pixels = functional.gelu(self.stem(x)).flatten(2).transpose(1, 2)
        parts = (self.mix[name](pixels) for name in ("query", "key", "value"))
        return self.head(functional.scaled_dot_product_attention(*parts).mean(1))


class Adapted(nn.Module):
    """Parametrizes a weight W as W + scale B A, with trainable A and B."""

    def __init__(self, a: torch.Tensor, b: torch.Tensor, scale: float) -> None:
        super().__init__()
        self.a, self.b, self.scale = nn.Parameter(a), nn.Parameter(b), scale

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        product = self.b.flatten(1) @ self.a.flatten(1)
        return weight + self.scale * product.reshape(weight.shape)


def model() -> Net:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return Net()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(6, 3, 8, 8), torch.randint(0, 3, (6,))


def arrays() -> dict[str, np.ndarray]:
    x, y = batch()
    return {"x": x.numpy(), "target": y.numpy()}


def by_hand(compiled: Compiled) -> Net:
    """Return the same model, with the program's initial factors as parametrizations."""
    net = model().requires_grad_(False)
    net.head.requires_grad_(True)
    for adapter in compiled.program.adapters:
        orders = (3, 2, 0, 1) if adapter.weight == "stem.weight" else (1, 0)
        a, b = (compiled.program.params[name].data for name in (adapter.a, adapter.b))
        down, up = (torch.from_numpy(array.transpose(orders).copy()) for array in (a, b))
        module = net.get_submodule(adapter.weight.rpartition(".")[0])
        parametrize.register_parametrization(module, "weight", Adapted(down, up, adapter.scale))
    return net


@EVERY_BACKEND
def test_ten_steps_equal_handwritten_adapters(device: Path | str) -> None:
    compiled = pockengine.compile(
        model(),
        batch()[:1],
        loss="cross_entropy",
        optimizer=pockengine.Adam(),
        scheme=SCHEME,
        device=device,
    )
    assert len(compiled.program.adapters) == 4
    twin, (x, y) = by_hand(compiled), batch()
    optimizer = torch.optim.Adam([p for p in twin.parameters() if p.requires_grad], RATE)
    losses = []
    with compiled.session(threads=2) as session:
        for _ in range(10):
            optimizer.zero_grad()
            theirs = functional.cross_entropy(twin(x), y)
            theirs.backward()
            optimizer.step()
            losses.append(float(session.train_step(arrays(), lr=RATE)["loss"]))
            assert losses[-1] == pytest.approx(theirs.item(), rel=1e-4)
        merged = compiled.state_dict(session)
        logits = session.predict({"x": x.numpy()})["output"]
    assert losses[-1] < 0.8 * losses[0]
    plain = model()
    plain.load_state_dict(merged, strict=False)
    np.testing.assert_allclose(plain(x).detach().numpy(), logits, rtol=1e-4, atol=1e-5)
    for name in ("stem", "mix.query", "mix.key", "mix.value"):
        weight = twin.get_submodule(name).weight
        torch.testing.assert_close(plain.get_submodule(name).weight, weight, rtol=1e-3, atol=1e-5)


def test_the_preset_and_its_files_load_into_another_session(tmp_path: Path) -> None:
    compiled = pockengine.compile(model(), batch()[:1], loss="cross_entropy", scheme="lora-2")
    assert {adapter.weight for adapter in compiled.program.adapters} == {
        "mix.query.weight",
        "mix.value.weight",
    }
    with compiled.session() as session:
        session.train_step(arrays(), lr=RATE)
        compiled.save_adapters(session, tmp_path / "adapter")
        session.save(tmp_path / "checkpoint")
        expected = session.predict({"x": arrays()["x"]})["output"]
    compiled.save_adapters(tmp_path / "checkpoint", tmp_path / "again")
    files = [tmp_path / name / "adapter_model.safetensors" for name in ("adapter", "again")]
    assert files[0].read_bytes() == files[1].read_bytes()
    with pytest.raises(ArtifactError, match=r"nothing for \w+"):
        compiled.state_dict(files[0])
    for load in ("adapter", "checkpoint"):
        with compiled.session() as session:
            before = session.predict({"x": arrays()["x"]})["output"]
            assert not np.array_equal(before, expected)
            if load == "adapter":
                compiled.load_adapters(session, tmp_path / load)
            else:
                session.load(tmp_path / load)
            np.testing.assert_array_equal(session.predict({"x": arrays()["x"]})["output"], expected)


def test_all_batch_sizes_share_the_adapters() -> None:
    torch.manual_seed(0)
    net, (x, y) = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), batch()
    rows = x[:, 0, 0, :5].contiguous()
    scheme = pockengine.lora(2, 2, ["0.weight"], ["2.*"])
    sizes = pockengine.Range(
        "batch", 1, 6, axes={"input": 0, "target": 0}, buckets=(3, 6), pad={"target": -100}
    )
    compiled = pockengine.compile(net, (rows,), loss="cross_entropy", scheme=scheme, sizes=sizes)
    losses = []
    with compiled.session() as session:
        for count in (6, 2, 3, 6):
            feed = {"input": rows[:count].numpy(), "target": y[:count].numpy()}
            losses.append(float(session.train_step(feed, lr=0.5)["loss"]))
            net.load_state_dict(compiled.state_dict(session))
        final = float(session.evaluate(feed)["loss"])
    assert final == pytest.approx(functional.cross_entropy(net(rows), y).item(), rel=1e-5)
    assert final < losses[-1] < losses[0]


def test_a_weight_without_influence_is_reported() -> None:
    class Unused(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 0.0 * self.mix["extra"](x.mean((2, 3))).detach()

    torch.manual_seed(0)
    net = Unused()
    net.mix["extra"] = nn.Linear(3, 3)
    scheme = pockengine.lora(2, 2, ["mix.extra.weight"])
    with pytest.raises(CompileError, match=r"mix.extra.weight.lora_A does not influence the loss"):
        pockengine.compile(net, batch()[:1], loss="cross_entropy", scheme=scheme)
