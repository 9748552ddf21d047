"""Frozen weights in fewer bits: generated C compared with PyTorch on the same values in f32."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import pockengine
from pockengine.compiled import Compiled
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.choice import FULL
from pockengine.errors import CompileError

RATE = 0.05
STEPS = 4
TRAINED = ("up.bias", "down.bias", "norm.*", "head.weight")
SCHEME = Scheme("some", tuple((name, FULL) for name in TRAINED))
STORAGES = {"bf16": "bf16", "f16": "f16", "int8": "i8", "int4": "u8"}


class Net(nn.Module):
    """An embedding table, a mixture of experts, two layers, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(160, 64)
        self.experts = nn.Parameter(torch.randn(3, 64, 64) / 8)
        self.up = nn.Linear(64, 96)
        self.down = nn.Linear(96, 64)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 5, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        x = x + (x[..., None, :] @ self.experts[ids % 3])[..., 0, :]
        x = x + self.down(nn.functional.gelu(self.up(x)))
        return self.head(self.norm(x).mean(1))


def model() -> Net:
    torch.manual_seed(0)
    return Net()


def batches() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {"ids": rng.integers(0, 160, (4, 7)), "labels": rng.integers(0, 5, 4)} for _ in range(STEPS)
    ]


def compiled_with(storage: str, scheme: object = SCHEME, **options: object) -> Compiled:
    return pockengine.compile(
        model(),
        (torch.zeros(4, 7, dtype=torch.int64),),
        loss="cross_entropy",
        scheme=scheme,
        storage=pockengine.Storage(storage),
        **options,
    )


def by_torch(net: Net) -> list[float]:
    trained = [p for name, p in net.named_parameters() if name not in FROZEN]
    optimizer = torch.optim.SGD(trained, RATE)
    losses = []
    for batch in batches():
        optimizer.zero_grad()
        logits = net(torch.from_numpy(batch["ids"]))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(batch["labels"]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


FROZEN = ("table.weight", "experts", "up.weight", "down.weight")


@pytest.mark.parametrize("storage", STORAGES)
def test_training_equals_pytorch_on_the_decoded_weights(storage: str, tmp_path: Path) -> None:
    compiled = compiled_with(storage, check=True)
    params = compiled.artifact.params
    assert {params[name].type.dtype.value for name in FROZEN} == {STORAGES[storage]}
    with compiled.session(threads=2) as session:
        start = compiled.state_dict(session)
        net = model()
        original = net.state_dict()
        limit = {"bf16": 2**-8, "f16": 2**-10, "int8": 2e-2, "int4": 2e-1}[storage]
        for name in FROZEN:
            scale = original[name].abs().max()
            assert 0 < (start[name] - original[name]).abs().max() <= limit * scale
        net.load_state_dict(start, strict=True)
        expected = by_torch(net)
        inputs = compiled.artifact.entries["train"].inputs
        names = [name for name in inputs if name not in ("lr", "step", "seed")]
        feeds = [dict(zip(names, batch.values(), strict=True)) for batch in batches()]
        losses = [float(session.train_step(feed, RATE)["loss"]) for feed in feeds]
        np.testing.assert_allclose(losses, expected, rtol=2e-5)
        ends = net.state_dict()
        for name, tensor in compiled.state_dict(session).items():
            torch.testing.assert_close(tensor, ends[name], rtol=1e-4, atol=1e-5)
        session.save(tmp_path / "part.safetensors")
        session.save(tmp_path / "whole.safetensors", whole=True)
        after = float(session.evaluate(feeds[0])["loss"])
    for name in ("part", "whole"):
        path = tmp_path / f"{name}.safetensors"
        from_file = compiled.state_dict(path)
        assert all(torch.allclose(from_file[n], t, rtol=1e-4, atol=1e-5) for n, t in ends.items())
        loaded = pockengine.load(compiled.artifact.folder)
        np.testing.assert_array_equal(
            loaded.weights(path)["down.weight"], start["down.weight"].numpy()
        )
        with compiled.session() as session:
            session.load(path)
            assert float(session.evaluate(feeds[0])["loss"]) == pytest.approx(after, rel=1e-6)


@pytest.mark.parametrize("dora", [False, True])
def test_adapters_are_merged_into_the_decoded_weights(dora: bool) -> None:
    compiled = compiled_with("int4", pockengine.lora(4, 8, ["up.weight"], ["head.*"], dora=dora))
    with compiled.session() as session:
        before = compiled.state_dict(session)["up.weight"]
        names = list(compiled.artifact.entries["predict"].inputs)
        feed = {names[0]: batches()[0]["ids"]}
        rng = np.random.default_rng(0)
        shape = session.get_param("up.weight.lora_B").shape
        session.set_param("up.weight.lora_B", rng.standard_normal(shape).astype(np.float32))
        merged = compiled.state_dict(session)
        output = next(iter(session.predict(feed).values()))
        net = model()
        net.load_state_dict(merged, strict=True)
        expected = net(torch.from_numpy(batches()[0]["ids"])).detach().numpy()
    assert (merged["up.weight"] - before).abs().max() > 0.1
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def _square(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x] * 13)[:64]


FORMS: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "few rows": ((64, 96), lambda x, w: x @ w),
    "few rows, transposed": ((96, 64), lambda x, w: x @ w.T),
    "many rows": ((64, 96), lambda x, w: _square(x) @ w),
    "many rows, transposed": ((96, 64), lambda x, w: _square(x) @ w.T),
    "one row": ((64, 96), lambda x, w: x.sum(0) @ w),
    "columns as rows": ((64, 96), lambda x, w: _square(x)[:, :5].T @ w),
    "columns as rows, transposed": ((96, 64), lambda x, w: _square(x)[:, :5].T @ w.T),
    "many columns as rows": ((64, 96), lambda x, w: _square(x).T @ w),
    "batches": ((64, 96), lambda x, w: torch.stack([x, 2 * x]) @ w),
    "batches of columns": ((64, 96), lambda x, w: torch.stack([_square(x)[:, :5]] * 2).mT @ w),
    "experts": ((3, 64, 96), lambda x, w: torch.stack([x, 2 * x, 3 * x]) @ w),
    "experts, transposed": ((3, 96, 64), lambda x, w: x @ w.mT),
    "experts of columns": ((3, 64, 96), lambda x, w: torch.stack([_square(x)[:, :5]] * 3).mT @ w),
    "read twice": ((64, 64), lambda x, w: torch.tanh(x @ w) @ w.T),
}


class Products(nn.Module):
    """The mean square of each form of a product, of five rows that a layer computes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up = nn.Linear(64, 64)
        shapes = [shape for shape, _ in FORMS.values()]
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(*shape) / 5, requires_grad=False) for shape in shapes
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.up(x))
        forms = (form for _, form in FORMS.values())
        pairs = zip(self.weights, forms, strict=True)
        return torch.stack([form(x, weight).square().mean() for weight, form in pairs])


@pytest.mark.parametrize("storage", ["int8", "int4"])
def test_products_of_every_form_equal_pytorch(storage: str) -> None:
    rows = torch.randn(5, 64, generator=torch.Generator().manual_seed(2))
    net = Products()
    store = pockengine.Storage(storage)
    compiled = pockengine.compile(
        net, (rows,), loss=lambda y: y.sum(), optimizer="sgd", storage=store
    )
    kinds = [compiled.artifact.params[f"weights.{n}"].type.dtype for n in range(len(FORMS))]
    assert {kind.value for kind in kinds} == {STORAGES[storage]}
    with compiled.session() as session:
        net.load_state_dict(compiled.state_dict(session))
        expected = net(rows)
        expected.sum().backward()
        outputs = session.train_step({"x": rows.numpy()}, RATE)
        found = next(array for name, array in outputs.items() if name != "loss")
        moved = net.up.weight - RATE * net.up.weight.grad
        for form, one, other in zip(FORMS, found, expected.tolist(), strict=True):
            assert one == pytest.approx(other, rel=2e-5), form
        torch.testing.assert_close(
            compiled.state_dict(session)["up.weight"], moved.detach(), rtol=1e-4, atol=1e-6
        )


class Tied(nn.Module):
    """A table of 4,096 words, tied to the head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4096, 64)
        self.mix = nn.Linear(64, 64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.mix(self.table(ids))) @ self.table.weight.T


@pytest.mark.parametrize("storage", ["int4", "int8", "bf16", "f32"])
def test_a_large_head_is_never_decoded_whole(storage: str) -> None:
    losses, arenas, budget = [], [], 400_000
    rng = np.random.default_rng(0)
    ids, labels = rng.integers(0, 4096, (2, 8))
    for bound in (None, budget):
        torch.manual_seed(0)
        made = pockengine.compile(
            Tied(),
            (torch.from_numpy(ids),),
            loss="cross_entropy",
            scheme=Scheme("mix", (("mix.*", FULL),)),
            storage=pockengine.Storage(storage),
            memory_budget=bound,
        )
        arenas.append(made.artifact.arena_bytes)
        feed = {"ids": ids, "target": labels}
        with made.session() as session:
            losses.append([float(session.train_step(feed, 0.01)["loss"]) for _ in range(3)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)  # a different order of summation
    assert losses[0][2] < losses[0][0]
    assert arenas[1] <= budget
    assert arenas[0] < 4 * 4096 * 64


def test_the_artifact_has_the_size_of_its_storage() -> None:
    made = {storage: compiled_with(storage) for storage in ("f32", "int4")}
    sizes = {name: each.artifact.weights.stat().st_size for name, each in made.items()}
    stored = 4 * (96 + 64 + 2 * 64 + 64 * 5)  # f32: these train
    small = 160 * 64 + 3 * 64 * 64 + 2 * 64 * 96
    assert sizes["f32"] - sizes["int4"] > 0.95 * small * (4 - 0.5625)
    assert sizes["int4"] < 1.2 * (small * 0.5625 + stored) + 2000


def test_an_unknown_storage_is_refused() -> None:
    with pytest.raises(CompileError, match="stored as f32, bf16, f16, int8, int4, not 'fp8'"):
        compiled_with("fp8")
    with pytest.raises(CompileError, match="no weight of a linear layer or embedding"):
        compiled_with("int4", "full")
