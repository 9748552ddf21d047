"""Evaluation and prediction process every row once; metrics and early stopping use them."""

from pathlib import Path

import numpy as np
import pytest

import pockengine
from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.early_stopping import BestEpoch, EarlyStopping
from pockengine.backends.training.history import Epoch
from pockengine.backends.training.loop import Step
from pockengine.errors import RuntimeFailure
from pockengine.tests.backends.c.resuming import same
from pockengine.tests.backends.training.nets import accuracy, compiled, data

ROWS = data(10)


@pytest.fixture(name="net", scope="module")
def trained() -> pockengine.Compiled:
    net = compiled()
    net.fit(data(40), epochs=5, lr=0.02)
    return net


def in_numpy(net: pockengine.Compiled, x: np.ndarray) -> np.ndarray:
    """Return the logits [N, classes]; evaluation has no dropout."""
    first, second = (net.trained.get_param(name) for name in ("first", "second"))
    return np.asarray(np.maximum(x @ first, 0) @ second)


def first_of(
    data: dict[str, np.ndarray] | tuple[np.ndarray] | np.ndarray, rows: int
) -> dict[str, np.ndarray] | np.ndarray:
    """Return the first rows of data in any form."""
    if isinstance(data, dict):
        return {name: array[:rows] for name, array in data.items()}
    return data[0][:rows] if isinstance(data, tuple) else data[:rows]


def test_prediction_has_every_row_in_order(net: pockengine.Compiled) -> None:
    expected = in_numpy(net, ROWS["x"])
    for rows in (1, 4, 10):
        for form in (ROWS, (ROWS["x"],), ROWS["x"]):
            found = net.predict(first_of(form, rows))["logits"]
            np.testing.assert_allclose(found, expected[:rows], rtol=1e-5, atol=1e-6)


def test_loss_is_over_whole_batches_and_metrics_over_all_rows(net: pockengine.Compiled) -> None:
    scores = net.evaluate(ROWS, metrics={"accuracy": accuracy})
    logits = in_numpy(net, ROWS["x"])
    exponents = np.exp(logits)
    losses = -np.log(exponents[np.arange(10), ROWS["labels"]] / exponents.sum(axis=1))

    assert (scores.rows, scores.of) == (8, 10)
    assert scores.loss == pytest.approx(losses[:8].mean(), rel=1e-5)
    assert scores.metrics == {"accuracy": pytest.approx(accuracy(logits, ROWS["labels"]))}
    assert repr(scores).endswith("(loss over 8 of 10 rows)")
    assert net.evaluate(data(3)).loss is None


class Largest:
    """The largest logit, in the form of a torchmetrics metric."""

    def reset(self) -> None:
        self._found: list[float] = []

    def update(self, prediction: np.ndarray, target: np.ndarray) -> None:
        assert len(prediction) == len(target)
        self._found.append(float(prediction.max()))

    def compute(self) -> float:
        return max(self._found)


def test_metrics_are_functions_and_objects_by_name(net: pockengine.Compiled) -> None:
    by_hand = pockengine.Metric(accuracy, output="logits", target="labels")
    scores = net.evaluate(ROWS, metrics=[accuracy, Largest(), by_hand])

    assert list(scores.metrics) == ["accuracy", "largest", "accuracy_2"]
    assert scores.metrics["largest"] == pytest.approx(in_numpy(net, ROWS["x"]).max(), rel=1e-5)
    assert scores.metrics["accuracy"] == scores.metrics["accuracy_2"]
    with pytest.raises(RuntimeFailure, match=r"needs one output of logits, and there is no probs"):
        net.evaluate(ROWS, metrics=[pockengine.Metric(accuracy, output="probs")])
    with pytest.raises(RuntimeFailure, match="metric nothing gives NoneType; let it return a numb"):
        net.evaluate(ROWS, metrics={"nothing": lambda prediction, target: None})


def test_a_loaded_artifact_trains_and_judges_too(tmp_path: Path, net: pockengine.Compiled) -> None:
    loaded = pockengine.load(net.artifact.folder)
    history = loaded.fit(data(40), epochs=5, lr=0.02)

    same(loaded.trained.params(), net.trained.params())
    assert loaded.evaluate(ROWS) == net.evaluate(ROWS)
    np.testing.assert_array_equal(loaded.weights()["first"], net.trained.get_param("first"))
    assert len(repr(history).splitlines()) == 7
    assert len(history.history["loss"]) == 5


def test_early_stopping_ends_as_in_the_best_epoch(tmp_path: Path) -> None:
    net, again = compiled(), compiled()
    rule = EarlyStopping(2, "validation_worse", "min")
    values = iter([3.0, 2.0, 1.0, 1.5, 1.0, 0.5])
    options = {"lr": 0.05, "validation": data(4), "metrics": {"worse": lambda p, t: next(values)}}
    history = net.fit(data(40), epochs=6, early_stopping=rule, checkpoint=tmp_path, **options)
    again.fit(data(40), epochs=3, lr=0.05)

    assert [epoch.number for epoch in history.epochs] == [1, 2, 3, 4, 5]
    assert history.stopped == "validation_worse was best in epoch 3, 2 epochs ago"
    assert net.trained.steps == 30
    same(net.trained.params(), again.trained.params())

    resumed = compiled()
    found = resumed.fit(
        data(40), epochs=6, early_stopping=rule, checkpoint=tmp_path, resume=True, **options
    )
    assert (found.stopped, len(found.steps)) == (history.stopped, 50)
    same(resumed.trained.params(), again.trained.params())


@pytest.mark.parametrize(
    ("mode", "figures", "best"),
    [
        ("min", [2.0, 1.0, 1.05, 0.95, float("nan")], 2),
        ("max", [2.0, 1.0, 1.05, 3.0, 3.05], 4),
        ("max", [float("nan"), 1.0, 1.0, 1.0, 1.0], 2),
    ],
)
def test_better_is_by_more_than_the_least(mode: str, figures: list[float], best: int) -> None:
    watch = BestEpoch(EarlyStopping(3, "loss", mode, least=0.1))
    for number, value in enumerate(figures, start=1):
        watch.weigh(Epoch(number, number, {"loss": value}))

    assert watch.best is not None
    assert watch.best.number == best
    assert watch.over is (len(figures) - best >= 3)


class Listener(Callback):
    """Records all its calls."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def on_step(self, step: Step) -> None:
        self.events.append(step.number)

    def on_epoch(self, epoch: Epoch) -> bool:
        self.events.append(f"epoch {epoch.number}")
        return epoch.number == 2

    def on_end(self) -> None:
        self.events.append("end")


def test_callbacks_learn_of_steps_and_epochs_and_end_a_training() -> None:
    listener = Listener()
    history = compiled().fit(data(8), epochs=9, lr=0.01, callbacks=[listener])

    assert listener.events == [1, 2, "epoch 1", 3, 4, "epoch 2", "end"]
    assert history.stopped == "Listener ended it after step 4"


def test_progress_is_lines_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    net = compiled()
    net.fit(data(8), epochs=2, lr=0.01)
    assert capsys.readouterr().out == ""
    net.fit(data(8), epochs=2, lr=0.01, progress=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["epoch", "1:", "training", "loss"],
        ["epoch", "2:", "training", "loss"],
    ]
