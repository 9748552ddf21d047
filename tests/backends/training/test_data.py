"""Rows and batches: all forms of data train equally, and mismatches are named."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pockengine
from pockengine.backends.row_order import RowOrder
from pockengine.backends.training.data import open_data
from pockengine.backends.training.loop import Step
from pockengine.backends.training.signature import Signature, signature_of
from pockengine.compiler.ir import F32, I64, TensorType
from pockengine.errors import ArtifactError, CompileError, RuntimeFailure
from pockengine.tests.backends.c.resuming import same
from pockengine.tests.backends.training.nets import BATCH, accuracy, compiled, data, graph

ROWS = data(22)


@pytest.fixture(name="net", scope="module")
def program() -> pockengine.Compiled:
    return compiled()


def batches(rows: dict[str, np.ndarray] = ROWS) -> Iterator[dict[str, np.ndarray]]:
    for first in range(0, len(rows["x"]), BATCH):
        yield {name: array[first : first + BATCH] for name, array in rows.items()}


def loader() -> DataLoader[Any]:
    pairs = TensorDataset(torch.from_numpy(ROWS["x"]), torch.from_numpy(ROWS["labels"]))
    return DataLoader(pairs, BATCH)


KINDS = {
    "a tuple": (ROWS["x"], ROWS["labels"]),
    "tensors": {name: torch.from_numpy(array) for name, array in ROWS.items()},
    "a list of dicts": list(batches()),
    "a list of tuples": [(batch["x"], batch["labels"]) for batch in batches()],
    "names and places": [({"labels": batch["labels"]}, batch["x"]) for batch in batches()],
    "a function": batches,
    "a DataLoader": loader(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_data_train_and_judge_alike(kind: str, net: pockengine.Compiled) -> None:
    expected, data = compiled(), KINDS[kind]
    expected.fit(ROWS, epochs=2, lr=0.02, shuffle=False)
    by_row = isinstance(data, dict | tuple)
    net.trained.take(expected.session())
    history = net.fit(data, epochs=2, lr=0.02, **({"shuffle": False} if by_row else {}))

    assert [step.epoch for step in history.steps] == [1] * 5 + [2] * 5
    same(net.trained.params(), expected.trained.params())
    metrics = {"accuracy": accuracy}
    assert net.evaluate(data, metrics=metrics) == expected.evaluate(ROWS, metrics=metrics)
    np.testing.assert_array_equal(net.predict(data)["logits"], expected.predict(ROWS)["logits"])


class Stop(pockengine.Callback):
    """Ends a training after step 7."""

    def on_step(self, step: Step) -> bool:
        return step.number == 7


def test_a_seeded_dataloader_resumes_as_if_nothing_had_stopped(tmp_path: Path) -> None:
    def shuffled() -> DataLoader[Any]:
        return DataLoader(
            loader().dataset, BATCH, shuffle=True, generator=torch.Generator().manual_seed(3)
        )

    whole, parts = compiled(), compiled()
    options = {"epochs": 3, "lr": 0.02, "schedule": "linear", "validation": loader()}
    expected = whole.fit(shuffled(), **options)
    parts.fit(shuffled(), **options, checkpoint=tmp_path, callbacks=[Stop()])
    found = parts.fit(shuffled(), **options, checkpoint=tmp_path, resume=True)

    same(parts.trained.params(), whole.trained.params())
    assert found.steps == expected.steps
    assert len({step.loss for step in found.steps}) == 15


def test_rows_are_shuffled_by_seed_and_epoch(net: pockengine.Compiled) -> None:
    signature = signature_of(net.artifact)
    source = open_data(signature, ROWS, "train", shuffle=None)
    for epoch, place in ((0, 0), (0, 4), (1, 2)):
        rows = RowOrder(22, 7, True).rows_at(epoch, place * BATCH, BATCH)
        batch = next(source.training(7, epoch * 5 + place, None))
        np.testing.assert_array_equal(batch.inputs["x"], ROWS["x"][rows])
        assert (batch.epoch, batch.last) == (epoch, place == 4)


def test_rows_that_are_shuffled_in_blocks_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pockengine.backends.training.rows._BLOCK", 16)
    signature = Signature("net", {"x": TensorType(I64, (5,))}, {"train": ("x",)}, {})
    source = open_data(signature, np.arange(53), "train", shuffle=True)
    found = [batch.inputs["x"] for batch in source.training(9, 0, 2)]

    for epoch in (0, 1):
        expected = RowOrder(53, 9, True).rows_at(epoch, 0, 50)
        np.testing.assert_array_equal(np.concatenate(found[10 * epoch :][:10]), expected)
    np.testing.assert_array_equal(next(source.training(9, 13, 2)).inputs["x"], found[13])


def test_scalars_take_a_number_a_batch() -> None:
    inputs = {"x": TensorType(F32, (4, 2)), "scale": TensorType(F32, ())}
    signature = Signature("net", inputs, {"train": ("x", "scale")}, {})
    rows = {"x": np.zeros((8, 2), np.float32), "scale": np.float32([3, 5])}
    found = [b.inputs["scale"] for b in open_data(signature, rows, "train").training(0, 0, 1)]

    assert [(float(scale), scale.shape) for scale in found] == [(3, ()), (5, ())]
    with pytest.raises(RuntimeFailure, match="same number of rows: x has 8, scale has 3"):
        open_data(signature, {**rows, "scale": np.float32([1, 2, 3])}, "train")


def test_inputs_of_other_batches_are_cut_alike_but_not_shuffled() -> None:
    inputs = {"x": TensorType(F32, (4, 2)), "edges": TensorType(I64, (6,))}
    signature = Signature("net", inputs, {"train": ("x", "edges")}, {})
    rows = {"x": np.zeros((8, 2), np.float32), "edges": np.arange(12)}
    found = [b.inputs["edges"] for b in open_data(signature, rows, "train").training(0, 0, 1)]

    np.testing.assert_array_equal(found, np.arange(12).reshape(2, 6))
    with pytest.raises(RuntimeFailure, match="give shuffle=False"):
        open_data(signature, rows, "train", shuffle=None)


def wrong(name: str, array: Any) -> dict[str, Any]:
    return {**ROWS, name: array}


WRONG = {
    "no labels": ({"x": ROWS["x"]}, "the data have no labels; train of dropping reads x, labels"),
    "unknown": (wrong("y", 1), "the data have y, which dropping does not read"),
    "dtype": (wrong("x", ROWS["x"].astype(float)), r"dtype float64.*\.astype\(numpy.float32\)"),
    "shape": (wrong("x", ROWS["x"][:, :3]), r"shape \[22, 3\].*reads rows \[N, 8\]"),
    "masked": (
        wrong("x", np.ma.masked_greater(ROWS["x"], 0.5)),
        r"x has masked elements, and no step reads a mask; give x\.filled\(number\)",
    ),
    "uneven": (wrong("x", ROWS["x"][:9]), "x has 9, labels has 22"),
    "empty": (data(0), "the data are empty: no row of"),
    "few": (data(3), "the data have 3 rows, and dropping takes 4 a batch; give more rows"),
    "scalar": (wrong("x", 3), "x has no rows"),
    "many parts": ((1, 2, 3), "a batch has 3 parts, but dropping has the inputs x, labels"),
    "no data": (5, "data of the type int cannot be read"),
    "a text": ("data.npz", "data of the type str cannot be read"),
    "no batch": ([], "have no batch of 4 rows in epoch 1"),
    "small": (list(batches(data(3))), "have no batch of 4 rows in epoch 1"),
    "short": ([*batches(), *batches()], "a batch has 2 rows, and dropping takes 4; only the last"),
    "large": ([data(8)], r"batch 0 of the data is x \[8, 8\], labels \[8\]; dropping takes 4 rows"),
    "a generator": (batches(), r"generator ended with epoch 1.*data=lambda: batches\(\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_data_that_do_not_fit_are_named(case: str, net: pockengine.Compiled) -> None:
    data, message = WRONG[case]
    with pytest.raises(RuntimeFailure, match=message):
        net.fit(data, epochs=2, lr=0.01)


def test_masked_rows_are_named_by_sessions_and_calibration(net: pockengine.Compiled) -> None:
    """A masked array without masked elements is an ordinary one."""
    rows = {name: array[:BATCH] for name, array in ROWS.items()}
    whole, some = (np.ma.masked_greater(rows["x"], above) for above in (np.inf, 0.5))
    with net.session() as session:
        expected = session.evaluate(rows)["loss"]
        assert session.evaluate({**rows, "x": whole})["loss"] == expected
        with pytest.raises(RuntimeFailure, match="x has masked elements"):
            session.evaluate({**rows, "x": some})
    with pytest.raises(CompileError, match="calibration: x has masked elements"):
        pockengine.compile(graph(), (), quantize=pockengine.Int8({"x": some}))


def test_options_that_do_not_fit_are_named(net: pockengine.Compiled) -> None:
    for options, message in (
        ({"lr": 0.1}, "epochs=None or steps=None; give one of them"),
        ({"lr": 0.1, "epochs": 1, "steps": 3}, "epochs=1 or steps=3; give one of them"),
        ({"lr": 0.1, "steps": 0}, "at least 1"),
        ({"epochs": 1}, "needs a learning rate: give lr"),
        ({"epochs": 1, "lr": float("nan")}, "not nan"),
        ({"epochs": 1, "lr": lambda n: "high"}, "rate of update 1 is 'high'; return a number"),
        ({"epochs": 1, "lr": 0.1, "schedule": "constant", "total": 2}, "leave total out"),
        ({"epochs": 1, "lr": 0.1, "threads": 0}, "threads must be from 1 to"),
        ({"epochs": 1, "lr": 0.1, "seed": 1 << 32}, "give a number from 0 to 4294967295"),
        ({"epochs": 1, "lr": "0.1"}, r"lr must be float \| Callable \| Scheduler \| None, not str"),
        ({"epochs": 1, "lr": 0.1, "schedule": "steps"}, "unknown schedule 'steps'"),
        ({"epochs": 1, "lr": lambda n: 0.1, "warmup": 3}, "leave schedule, warmup and total out"),
        ({"epochs": 1, "lr": 0.1, "metrics": [accuracy]}, "give validation"),
        ({"epochs": 1, "lr": 0.1, "batch": 2}, "compiled for batches of 4, not 2"),
        ({"epochs": 1, "lr": 0.1, "early_stopping": 0}, "patience is at least 1"),
        (
            {"epochs": 1, "lr": 0.1, "early_stopping": pockengine.EarlyStopping(2)},
            "by validation_loss, which no epoch has; they have loss, rate, seconds",
        ),
    ):
        with pytest.raises(RuntimeFailure, match=message):
            net.fit(ROWS, **options)
    with pytest.raises(RuntimeFailure, match="cosine schedule needs the number of its updates"):
        net.fit(batches, epochs=1, lr=0.1, schedule="cosine")
    with pytest.raises(RuntimeFailure, match="have their own size and order"):
        net.fit(batches, epochs=1, lr=0.1, shuffle=True)


def test_an_artifact_of_a_board_says_where_it_trains() -> None:
    board = compiled("rpi4")
    with pytest.raises(ArtifactError, match=r"for rpi4 has no library .*by its runner on the dev"):
        board.fit(ROWS, epochs=1, lr=0.1)


def test_a_generator_trains_for_steps(net: pockengine.Compiled) -> None:
    def endless() -> Iterator[dict[str, np.ndarray]]:
        while True:
            yield from batches(data(20))

    assert len(net.fit(endless(), steps=7, lr=0.01).steps) == 7


def test_a_training_is_pytorchs() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    theirs = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    theirs.load_state_dict(model.state_dict())
    x, y = torch.from_numpy(ROWS["x"]), torch.from_numpy(ROWS["labels"])
    net = pockengine.compile(model, (x[:BATCH],), loss="cross_entropy", optimizer="AdamW")
    history = net.fit((x, y), epochs=3, lr=0.01, seed=3, validation=(x[:20], y[:20]))

    optimizer = torch.optim.AdamW(theirs.parameters(), 0.01)
    order, losses = RowOrder(22, 3, True), []
    for epoch in range(3):
        for first in range(0, 20, BATCH):
            rows = order.rows_at(epoch, first, BATCH)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(theirs(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    judged = nn.functional.cross_entropy(theirs(x[:20]), y[:20]).item()

    np.testing.assert_allclose([step.loss for step in history.steps], losses, rtol=1e-4)
    assert history.history["validation_loss"][-1] == pytest.approx(judged, rel=1e-4)
    assert history.history["loss"][-1] == pytest.approx(np.mean(losses[-5:]), rel=1e-4)
    for name, tensor in net.state_dict().items():
        torch.testing.assert_close(tensor, theirs.state_dict()[name], rtol=1e-4, atol=1e-5)


class Share(nn.Module):
    """Accuracy that keeps tensors, as torchmetrics does."""

    def reset(self) -> None:
        self.right, self.rows = torch.tensor(0), 0

    def update(self, prediction: torch.Tensor, target: torch.Tensor) -> None:
        self.right += (prediction.argmax(1) == target).sum()
        self.rows += len(target)

    def compute(self) -> torch.Tensor:
        return self.right / self.rows


def test_metrics_of_pytorch_are_given_tensors(net: pockengine.Compiled) -> None:
    found = net.evaluate(ROWS, metrics=[Share(), nn.functional.cross_entropy, accuracy]).metrics

    assert found["share"] == pytest.approx(found["accuracy"])
    logits = torch.from_numpy(net.predict(ROWS)["logits"])
    expected = nn.functional.cross_entropy(logits, torch.from_numpy(ROWS["labels"]))
    assert found["cross_entropy"] == pytest.approx(expected.item(), rel=1e-5)


def test_a_range_takes_short_batches_as_they_are() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 3))
    sizes = pockengine.Range(
        "batch", 1, 4, axes={"input": 0, "target": 0}, buckets=(2, 4), pad={"target": -100}
    )
    x, y = torch.from_numpy(ROWS["x"][:11]), torch.from_numpy(ROWS["labels"][:11])
    net = pockengine.compile(model, (x[:4],), loss="cross_entropy", sizes=sizes)
    scores = net.evaluate((x, y))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    expected = nn.functional.cross_entropy(model(x), y).item()
    for rows in (slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 11)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    history = net.fit((x, y), epochs=1, lr=0.1, batch=3, shuffle=False)

    assert (scores.rows, scores.of) == (11, 11)
    assert scores.loss == pytest.approx(expected, rel=1e-5)
    assert [step.rows for step in history.steps] == [3, 3, 3, 2]
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], tensor, rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeFailure, match="batch is 5; Sequential takes 1 to 4"):
        net.fit((x, y), epochs=1, lr=0.1, batch=5)
