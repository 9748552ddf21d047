"""torchmetrics' own classes work as metrics of `fit` and `evaluate`."""

import numpy as np
import pytest
import torch
import torchmetrics.classification
from torch import nn

import pockengine

CLASSES = 3


@pytest.fixture(scope="module")
def compiled() -> pockengine.Compiled:
    torch.manual_seed(0)
    return pockengine.compile(nn.Linear(8, CLASSES), (torch.zeros(4, 8),), loss="cross_entropy")


def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(count)
    x = torch.randn(count, 8)
    return x, x[:, :CLASSES].argmax(1)


def test_metrics_are_those_of_all_rows_at_once(compiled: pockengine.Compiled) -> None:
    """27 rows are 6 batches of 4 and a padded one of 3; macro averages ignore the batches."""
    x, y = rows(27)
    metrics = {
        "accuracy": torchmetrics.classification.MulticlassAccuracy(CLASSES, average="micro"),
        "f1": torchmetrics.classification.MulticlassF1Score(CLASSES, average="macro"),
        "auroc": torchmetrics.classification.MulticlassAUROC(CLASSES),
    }
    history = compiled.fit(
        rows(60), epochs=6, lr=0.5, validation=(x, y), metrics=metrics, progress=False
    )
    logits = torch.from_numpy(compiled.predict({"input": x.numpy()})["output"])
    for name, metric in metrics.items():
        metric.reset()
        expected = float(metric(logits, y))
        assert history.history[f"validation_{name}"][-1] == pytest.approx(expected)
        found = compiled.evaluate((x, y), metrics={name: metric}).metrics[name]
        assert found == pytest.approx(expected)
    accuracies = history.history["validation_accuracy"]
    assert accuracies[-1] > max(0.8, accuracies[0])
    assert np.mean(logits.argmax(1).numpy() == y.numpy()) == pytest.approx(accuracies[-1])
