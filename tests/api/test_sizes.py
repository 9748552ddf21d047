"""Varying sizes: padded steps equal PyTorch's steps on the unpadded data."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import pockengine
from pockengine.backends.manifest import read_manifest
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.scheme import FULL
from pockengine.errors import ArtifactError, CompileError, RuntimeFailure
from pockengine.tests.backends.every import EVERY_BACKEND
from pockengine.tests.backends.toy import DEVICE
from pockengine.tests.frontends.torch.nets import convolution_and_head

BATCH = pockengine.Range(
    "batch", 1, 8, axes={"input": 0, "target": 0}, buckets=(2, 8), pad={"target": -100}
)


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(size)
    return torch.randn(size, 1, 6, 6), torch.randint(0, 3, (size,))


@EVERY_BACKEND
def test_batches_of_any_size_train_as_in_torch(tmp_path: Path, device: Path | str) -> None:
    net = convolution_and_head()
    compiled = pockengine.compile(
        net,
        (batch(4)[0],),
        loss="cross_entropy",
        optimizer=pockengine.Sgd(momentum=0.9),
        sizes=BATCH,
        device=device,
        folder=tmp_path / "net",
    )
    assert {"train@2", "train@8", "predict@2"} <= set(compiled.artifact.entries)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    with compiled.session() as session:
        for size in (1, 2, 3, 8, 5):
            x, y = batch(size)
            outputs = session.train_step({"input": x.numpy(), "target": y.numpy()}, lr=0.1)
            optimizer.zero_grad()
            theirs = nn.functional.cross_entropy(net(x), y)
            theirs.backward()
            optimizer.step()
            assert float(outputs["loss"]) == pytest.approx(theirs.item(), rel=1e-4)
            assert outputs["output"].shape == (size, 3)
        logits = session.predict({"input": batch(5)[0].numpy()})["output"]
        np.testing.assert_allclose(logits, net(batch(5)[0]).detach().numpy(), rtol=1e-4, atol=1e-5)
        with pytest.raises(RuntimeFailure, match="batch is 9; it ranges from 1 to 8"):
            session.predict({"input": batch(9)[0].numpy()})
        uneven = {"input": batch(2)[0].numpy(), "target": batch(3)[1].numpy()}
        with pytest.raises(RuntimeFailure, match="must share one batch: input 2, target 3"):
            session.train_step(uneven, lr=0.1)
        flat = {"input": batch(2)[0].numpy(), "target": np.array(1)}
        with pytest.raises(RuntimeFailure, match=r"target .*\(2,\)|target .*\[2\]"):
            session.train_step(flat, lr=0.1)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_narrow_labels_are_padded_by_the_ignored_value(dtype: type) -> None:
    """-100 would be 156 in eight bits, one of these 200 classes."""
    net = nn.Linear(4, 200)
    sizes = replace(BATCH, low=3, high=4, buckets=(4,))
    x, y = torch.randn(3, 4), torch.randint(0, 200, (3,))
    compiled = pockengine.compile(net, (x,), loss="cross_entropy", sizes=sizes)
    with compiled.session() as session:
        found = session.evaluate({"input": x, "target": y.numpy().astype(dtype)})["loss"]
        half = session.evaluate({"input": x.bfloat16(), "target": y})["loss"]
    for loss, data in ((found, x), (half, x.bfloat16().float())):
        expected = nn.functional.cross_entropy(net(data), y).item()
        assert float(loss) == pytest.approx(expected, rel=1e-5)


class Bag(nn.Sequential):
    """The mean of words, with those that pad a text."""

    def __init__(self) -> None:
        super().__init__(nn.Embedding(11, 8), nn.AdaptiveAvgPool2d((1, 8)), nn.Flatten())


@pytest.mark.parametrize("filler", [0, 1])
def test_no_word_of_padding_is_taken_for_data(filler: int) -> None:
    pad = {"input": filler}
    sizes = pockengine.Range("length", 2, 6, axes={"input": 1}, buckets=(6,), pad=pad)
    example = torch.zeros(3, 4, dtype=torch.int64)
    with pytest.raises(CompileError, match="padding length from 2 to 6 changes the loss"):
        pockengine.compile(Bag(), (example,), loss="cross_entropy", sizes=sizes)


def test_padding_that_only_short_data_show_is_refused() -> None:
    """A stride of 2 computes 4 columns of 7 samples and of 8, and the loss is their mean."""
    net = nn.Sequential(
        nn.Conv1d(1, 3, 3, stride=2, padding=1), nn.AdaptiveAvgPool1d(1), nn.Flatten()
    )
    sizes = pockengine.Range("length", 3, 8, axes={"input": 2}, buckets=(8,))
    with pytest.raises(CompileError, match="padding length from 3 to 8 changes the loss"):
        pockengine.compile(net, (torch.randn(2, 1, 8),), loss="cross_entropy", sizes=sizes)


def test_a_model_that_mixes_padding_with_data_is_refused() -> None:
    net = nn.Sequential(
        convolution_and_head()[0], nn.BatchNorm2d(4), *list(convolution_and_head())[1:]
    )
    with pytest.raises(CompileError, match=r"padding batch from 1 to 2 changes .*eval\(\)"):
        pockengine.compile(net, (batch(4)[0],), loss="cross_entropy", sizes=BATCH)
    net.eval()  # with frozen statistics the rows are independent
    with pockengine.compile(
        net, (batch(4)[0],), loss="cross_entropy", sizes=BATCH
    ).session() as session:
        x, y = batch(3)
        loss = session.evaluate({"input": x.numpy(), "target": y.numpy()})["loss"]
        assert float(loss) == pytest.approx(nn.functional.cross_entropy(net(x), y).item(), rel=1e-4)


def test_examples_of_a_loss_function_follow_the_models() -> None:
    def loss(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, target)

    x, y = batch(3)
    net = convolution_and_head()
    compiled = pockengine.compile(net, batch(4), loss=loss, sizes=BATCH)
    with compiled.session() as session:
        found = session.evaluate({"input": x.numpy(), "target": y.numpy()})["loss"]
    assert float(found) == pytest.approx(loss(net(x), y).item(), rel=1e-4)


class Similar(nn.Module):
    """Logits, and the similarity of a batch's rows, an output [size, size]."""

    def __init__(self) -> None:
        super().__init__()
        self.net = convolution_and_head()

    def forward(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.net(input)
        return logits, logits @ logits.T


class Words(nn.Module):
    """Logits of each word, with one more output of a recurrent layer over embeddings."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.embed = nn.Embedding(11, 8)
        self.layer = nn.GRU(8, 8, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, last = self.layer(self.embed(tokens))
        return y.transpose(1, 2), last if self.kind == "last" else y.flatten(0, 1)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("last", r"padding length from 2 to 6 changes output output\.1: .* leave it out"),
        ("rows", r"output output\.1 f32\[12,8\] cannot be cropped: .* it is f32\[4,8\]"),
    ],
)
def test_an_output_that_padding_reaches_is_refused(kind: str, fault: str) -> None:
    axes = {"tokens": 1, "target": 1}
    sizes = pockengine.Range("length", 2, 6, axes=axes, buckets=(6,), pad={"target": -100})
    example = torch.zeros(2, 4, dtype=torch.int64)
    with pytest.raises(CompileError, match=fault):
        pockengine.compile(Words(kind), (example,), loss="cross_entropy", sizes=sizes)


@pytest.mark.parametrize("buckets", [(8,), (2, 8)])
def test_outputs_are_cropped_to_the_input_sizes(buckets: tuple[int, ...]) -> None:
    net = Similar()
    sizes = replace(BATCH, buckets=buckets)
    compiled = pockengine.compile(net, (batch(4)[0],), loss="cross_entropy", sizes=sizes)
    with compiled.session() as session:
        for size in (1, 3, 8):
            x, y = batch(size)
            ours = session.predict({"input": x.numpy()})
            for found, expected in zip(ours.values(), net(x), strict=True):
                np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
            outputs = session.train_step({"input": x.numpy(), "target": y.numpy()}, lr=0.0)
            shapes = [array.shape for name, array in outputs.items() if name != "loss"]
            assert shapes == [(size, 3), (size, size)]


def test_rows_are_predicted_with_a_single_bucket() -> None:
    net, (x, _) = convolution_and_head(), batch(13)
    sizes = replace(BATCH, buckets=(8,))
    compiled = pockengine.compile(net, (batch(4)[0],), loss="cross_entropy", sizes=sizes)
    logits = compiled.predict(x)["output"]
    np.testing.assert_allclose(logits, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)


class Decoder(nn.Module):
    """One causal attention layer over token embeddings: later tokens have no influence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.embed(tokens)).chunk(3, -1)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y).transpose(1, 2)


def test_sequences_of_any_length_train_as_in_torch() -> None:
    torch.manual_seed(0)
    net = Decoder()
    length = pockengine.Range(
        "length", 2, 12, axes={"tokens": 1, "target": 1}, buckets=(6, 12), pad={"target": -100}
    )
    example = torch.zeros(2, 4, dtype=torch.int64)
    compiled = pockengine.compile(net, (example,), loss="cross_entropy", sizes=length)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with compiled.session() as session:
        for size in (5, 6, 9):
            tokens, target = torch.randint(0, 11, (2, 2, size)).unbind()
            inputs = {"tokens": tokens.numpy(), "target": target.numpy()}
            ours = session.train_step(inputs, lr=0.1)
            optimizer.zero_grad()
            theirs = nn.functional.cross_entropy(net(tokens), target)
            theirs.backward()
            optimizer.step()
            assert float(ours["loss"]) == pytest.approx(theirs.item(), rel=1e-4)
            assert ours["output"].shape == (2, 11, size)


class Positions(Decoder):
    """A decoder with a table of positions, of which a shorter text reads a part."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(12, 8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.positions[: tokens.shape[1]]
        return self.out(torch.tanh(x)).transpose(1, 2)


@pytest.mark.parametrize("buckets", [(12,), (6, 12)])
def test_a_frozen_table_of_positions_is_cut_to_each_size(buckets: tuple[int, ...]) -> None:
    net = Positions()
    axes = {"tokens": 1, "target": 1}
    length = pockengine.Range("length", 2, 12, axes=axes, buckets=buckets, pad={"target": -100})
    scheme = Scheme("head", (("out.*", FULL),))
    example = torch.zeros(2, 4, dtype=torch.int64)
    compiled = pockengine.compile(
        net, (example,), loss="cross_entropy", sizes=length, scheme=scheme
    )
    for size in (5, 12):
        tokens = torch.randint(0, 11, (2, size))
        logits = compiled.trained.predict({"tokens": tokens})["output"]
        np.testing.assert_allclose(logits, net(tokens).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {"buckets": (2, 4)},
        {"buckets": (8, 2)},
        {"low": 0},
        {"low": 9},
        {"axes": {}},
        {"axes": {"x": -1}},
        {"axes": {"x": True}},
        {"pad": {"y": -100}},
        {"pad": {"x": float("-inf")}},
        {"pad": {"x": "0"}},
    ],
)
def test_impossible_ranges_are_errors(fields: dict[str, object]) -> None:
    arguments = {"name": "n", "low": 1, "high": 8, "axes": {"x": 0}, "buckets": (8,), **fields}
    with pytest.raises(CompileError):
        pockengine.Range(**arguments)


def test_numbers_of_numpy_pad_as_pythons_do() -> None:
    pad = {"x": np.float32(-1e9), "y": np.int64(-100)}
    sizes = pockengine.Range("n", 1, 8, axes={"x": 0, "y": 0}, buckets=(8,), pad=pad)
    assert json.loads(json.dumps(sizes.pad)) == {"x": -1e9, "y": -100}


def test_a_range_over_an_unknown_input_is_an_error() -> None:
    sizes = pockengine.Range("batch", 1, 4, axes={"image": 0}, buckets=(4,))
    with pytest.raises(CompileError, match=r"no input \['image'\]; the inputs are"):
        pockengine.compile(
            convolution_and_head(), (batch(4)[0],), loss="cross_entropy", sizes=sizes
        )


def test_a_range_over_a_dimension_that_an_input_lacks_is_an_error() -> None:
    sizes = replace(BATCH, axes={"input": 0, "target": 1})
    with pytest.raises(CompileError, match=r"target i64\[4\] has no dimension 1; the first is 0"):
        pockengine.compile(
            convolution_and_head(), (batch(4)[0],), loss="cross_entropy", sizes=sizes
        )


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sized") / "net"
    options = {"loss": "cross_entropy", "sizes": BATCH, "device": DEVICE, "folder": folder}
    pockengine.compile(convolution_and_head(), (batch(4)[0],), **options)
    return folder


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (
            {"axes": {"input": 4, "target": 0}},
            r"dimension 4 of input f32\[2,1,6,6\] of .*@2 is not 2",
        ),
        ({"axes": {"input": 2, "target": 0}}, "dimension 2 of input .* is not 2"),
        ({"axes": {"image": 0}, "pad": {}}, "batch: no entry has an input 'image'"),
        ({"buckets": [3, 8]}, "the entries are not one for each of its buckets"),
        ({"outputs": {"predict": {"output": [1]}}}, "dimension 1 of output .* of predict@2"),
    ],
)
def test_sizes_that_no_entry_has_are_refused_at_load(
    sized: Path, damage: dict[str, object], fault: str
) -> None:
    path = sized / "manifest.json"
    text = path.read_text()
    table = json.loads(text)
    table["sizes"] |= damage
    path.write_text(json.dumps(table))
    try:
        with pytest.raises(ArtifactError, match=fault):
            read_manifest(sized)
    finally:
        path.write_text(text)
