"""The Keras model and TensorFlow's training step compared with PyTorch's: logits, losses, tensors.

TensorFlow runs in a separate worker process; this process runs PyTorch.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pockengine.errors import FarmError
from pockengine.farm.references.engines import find_engine
from pockengine.farm.references.job import JobData, Tensors, write_job
from pockengine.farm.references.torch_reference import TorchTrainer, load_weights, train
from pockengine.farm.references.worker import Worker, is_available, open_worker
from pockengine.models.registry import parse_model
from pockengine.tests.farm.references.jobs import random_job, relative_error

pytestmark = pytest.mark.skipif(
    not is_available(find_engine("tf-graph")), reason="TensorFlow is not installed; Bazel brings it"
)
MODEL, CLASSES, SHAPE = "mobilenet_v2-0.35-64", 10, (4, 3, 64, 64)
SGD = {"learning_rate": 0.001, "momentum": 0.9, "weight_decay": 0.01}
LOSS_TOLERANCE, TENSOR_TOLERANCE = 1e-4, 1e-3


def calm_weights() -> Tensors:
    """Return initial weights whose batch norms keep most values inside ReLU6's linear part.

    With zero biases a fresh net is chaotic: rounding alone moves its third loss by a percent.
    """
    torch.manual_seed(0)
    module = parse_model(MODEL).build(CLASSES)
    for name, layer in module.named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.constant_(layer.weight, 0.7)
            # No ReLU6 follows the last norm of a block.
            nn.init.constant_(layer.bias, 0.0 if name.endswith(("conv.2", "conv.3")) else 2.0)
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}


def make_job(folder: Path, **settings: Any) -> JobData:
    data = random_job(calm_weights(), SHAPE, model=MODEL, classes=CLASSES, **SGD, **settings)
    write_job(folder, data)
    return data


def torch_training(data: JobData) -> tuple[list[float], Tensors]:
    torch.set_num_threads(1)
    return train(parse_model(MODEL).build(CLASSES), data)


@pytest.fixture(scope="module")
def tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    folder = tmp_path_factory.mktemp("first")
    make_job(folder)
    with open_worker("tf-eager", folder, threads=1) as worker:
        yield worker


def test_keras_logits_match_pytorch(tensorflow: Worker, tmp_path: Path) -> None:
    data = make_job(tmp_path)
    tensorflow.prepare(tmp_path, "tf-eager", threads=1)
    found = tensorflow.predict()

    module = parse_model(MODEL).build(CLASSES)
    load_weights(module, data.weights)
    trainer = TorchTrainer(module, data.job)
    expected = trainer.predict(trainer.batch(data.images[0], data.labels[0])[0])
    assert relative_error(found, expected) < 1e-5


@pytest.mark.parametrize("engine", ["tf-eager", "tf-graph"])
@pytest.mark.parametrize("batch_norm", ["train", "frozen"])
def test_three_steps_match_pytorch(
    tensorflow: Worker, tmp_path: Path, engine: str, batch_norm: str
) -> None:
    data = make_job(tmp_path, batch_norm=batch_norm)
    tensorflow.prepare(tmp_path, engine, threads=1)
    training = tensorflow.train()

    losses, tensors = torch_training(data)
    assert training.losses == pytest.approx(losses, rel=LOSS_TOLERANCE)
    # Keras does not count batches, and its running variance is the biased one.
    unlike = (".num_batches_tracked", ".running_var") if batch_norm == "train" else (".num_",)
    compared = [name for name in tensors if not any(part in name for part in unlike)]
    assert compared
    errors = {name: relative_error(training.tensors[name], tensors[name]) for name in compared}
    assert not {name: error for name, error in errors.items() if error > TENSOR_TOLERANCE}


@pytest.mark.parametrize("engine", ["tf-eager", "tf-graph"])
def test_sparse_scheme_matches_pytorch(tensorflow: Worker, tmp_path: Path, engine: str) -> None:
    trainable = {
        "classifier.1.bias": None,
        "classifier.1.weight": (0, 320),
        "features.17.conv.0.0.weight": (0, 14),
        "features.17.conv.1.0.weight": (16, 48),
        "features.16.conv.3.bias": None,
    }
    data = make_job(tmp_path, trainable=trainable)
    tensorflow.prepare(tmp_path, engine, threads=1)
    training = tensorflow.train()

    losses, tensors = torch_training(data)
    assert training.losses == pytest.approx(losses, rel=LOSS_TOLERANCE)
    for name in trainable:
        assert relative_error(training.tensors[name], tensors[name]) < TENSOR_TOLERANCE
        still = tensors[name] == data.weights[name]
        np.testing.assert_array_equal(training.tensors[name] == data.weights[name], still)


def test_steps_are_timed_and_memory_is_read(tensorflow: Worker, tmp_path: Path) -> None:
    make_job(tmp_path)
    tensorflow.prepare(tmp_path, "tf-graph", threads=1)

    assert len(tensorflow.step(2)) == 2
    assert tensorflow.peak_rss() > 100e6


def test_errors_name_mismatched_tensors(tensorflow: Worker, tmp_path: Path) -> None:
    data = make_job(tmp_path)
    without = {name: w for name, w in data.weights.items() if name != "classifier.1.bias"}
    unknown = replace(data.job, model="resnet18-64")
    cases = {
        "weights": (replace(data, weights=without), "'classifier.1.bias' is not in the weights"),
        "family": (replace(data, job=unknown), "resnet18 has no TensorFlow form"),
        "name": (replace(data, job=replace(data.job, trainable={"x": None})), "no parameter 'x'"),
    }
    for name, (case, message) in cases.items():
        write_job(tmp_path / name, case)
        with pytest.raises(FarmError, match=message):
            tensorflow.prepare(tmp_path / name, "tf-eager", threads=1)
    with pytest.raises(FarmError, match="threads cannot change"):
        tensorflow.prepare(tmp_path, "tf-eager", threads=2)
