"""Every other peer trains like PyTorch: three steps with equal losses."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from pockengine.errors import FarmError
from pockengine.farm.references.engines import find_engine
from pockengine.farm.references.job import JobData, Tensors, TrainingJob, write_job
from pockengine.farm.references.layouts import from_channels_last, to_channels_last
from pockengine.farm.references.torch_reference import train
from pockengine.farm.references.worker import is_available, open_worker
from pockengine.models.registry import parse_model
from pockengine.tests.farm.references.jobs import random_job

NET, TEXT = "mobilenet_v2-0.1-32", "llama-15m-8"
TOLERANCE = 1e-4
CASES = (
    pytest.param("jax-jit", NET, marks=pytest.mark.nightly),
    ("jax-jit", TEXT),
    pytest.param("jax-jit", "bert_base-8", marks=pytest.mark.nightly),
    ("ort-training", NET),
    ("mnn-train", NET),
)


def make_job(folder: Path, model: str) -> JobData:
    torch.manual_seed(0)
    name = parse_model(model)
    module = name.build(10)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.constant_(layer.bias, 2.0)  # open gates, so that rounding is not amplified
    weights: Tensors = {key: x.numpy().copy() for key, x in module.state_dict().items()}
    data = random_job(weights, (2, 3, 32, 32), model=model, learning_rate=0.01)
    if name.known.vocabulary:
        tokens = torch.randint(name.known.vocabulary, (3, 2, *name.input_shape)).numpy()
        data = JobData(
            TrainingJob(model, classes=10, learning_rate=0.01), weights, tokens, data.labels
        )
    write_job(folder, data)
    return data


@pytest.mark.parametrize(("engine", "model"), CASES)
def test_losses_of_three_steps_match_pytorch(engine: str, model: str, tmp_path: Path) -> None:
    if not is_available(find_engine(engine)):
        pytest.skip(f"the framework of {engine} is not installed; Bazel brings it")
    data = make_job(tmp_path, model)
    with open_worker(engine, tmp_path, threads=1) as worker:
        training = worker.train()
        times = worker.step(2)
    torch.set_num_threads(1)
    losses, _ = train(parse_model(model).build(10), data)
    assert training.losses == pytest.approx(losses, rel=TOLERANCE)
    assert len(set(losses)) == 3
    assert len(training.ms) == 3
    assert len(times) == 2


def test_onnx_runtime_trains_the_tensors_of_a_scheme(tmp_path: Path) -> None:
    if not is_available(find_engine("ort-training")):
        pytest.skip("the framework of ort-training is not installed; Bazel brings it")
    data = make_job(tmp_path, NET)
    chosen = dict.fromkeys(("features.18.0.weight", "classifier.1.weight", "classifier.1.bias"))
    sparse = replace(data, job=replace(data.job, trainable=chosen))
    write_job(tmp_path, sparse)
    with open_worker("ort-training", tmp_path, threads=1) as worker:
        training = worker.train()
    torch.set_num_threads(1)
    losses, _ = train(parse_model(NET).build(10), sparse)
    assert training.losses == pytest.approx(losses, rel=TOLERANCE)

    share = replace(data.job, trainable={"features.18.0.weight": (0, 2)})
    write_job(tmp_path, replace(data, job=share))
    with pytest.raises(FarmError, match="whole tensors, and no channels"):
        open_worker("ort-training", tmp_path, threads=1)


@pytest.mark.parametrize(
    ("model", "chosen"),
    [
        (TEXT, ("model.layers.5.mlp.up_proj.weight", "model.norm.weight")),
        pytest.param(
            "bert_base-8",
            ("bert.encoder.layer.0.attention.self.key.weight", "bert.pooler.dense.weight"),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_tensorflow_trains_the_transformer_tensors_of_a_scheme(
    model: str, chosen: tuple[str, ...], tmp_path: Path
) -> None:
    if not is_available(find_engine("tf-graph")):
        pytest.skip("the framework of tf-graph is not installed; Bazel brings it")
    data = make_job(tmp_path, model)
    sparse = replace(data, job=replace(data.job, trainable=dict.fromkeys(chosen)))
    write_job(tmp_path, sparse)
    with open_worker("tf-graph", tmp_path, threads=1) as worker:
        training = worker.train()
        for trainable, message in (
            ({"nothing": None}, "no parameter 'nothing'"),
            ({chosen[-1]: (0, 8)}, "whole tensors are trained here, and no channels"),
        ):
            write_job(tmp_path, replace(data, job=replace(data.job, trainable=trainable)))
            with pytest.raises(FarmError, match=message):
                worker.prepare(tmp_path, "tf-graph", threads=1)
    torch.set_num_threads(1)
    losses, tensors = train(parse_model(model).build(10), sparse)
    assert training.losses == pytest.approx(losses, rel=TOLERANCE)
    moved = {name for name in tensors if (training.tensors[name] != data.weights[name]).any()}
    assert moved == set(chosen)


def test_flex_operators_match_pytorch(tmp_path: Path) -> None:
    if not is_available(find_engine("tf-flex")):
        pytest.skip("TensorFlow is not installed; Bazel brings it")
    data = make_job(tmp_path, NET)
    with open_worker("tf-flex", tmp_path, threads=1) as worker:
        assert worker.file_bytes > sum(x.nbytes for x in data.weights.values())
        try:
            training = worker.train()
        except FarmError as error:
            if "has no Flex delegate" not in str(error):
                raise
            pytest.skip("this TensorFlow has no Flex delegate; 2.15 has")
    torch.set_num_threads(1)
    losses, _ = train(parse_model(NET).build(10), data)
    assert training.losses == pytest.approx(losses, rel=TOLERANCE)


@pytest.mark.parametrize("engine", ["ort-training", "mnn-train"])
def test_unsupported_models_are_an_error(engine: str, tmp_path: Path) -> None:
    if not is_available(find_engine(engine)):
        pytest.skip(f"the framework of {engine} is not installed; Bazel brings it")
    make_job(tmp_path, TEXT)
    with pytest.raises(FarmError, match="llama-15m is no net of"):
        open_worker(engine, tmp_path, threads=1)


def test_channels_last_weights_round_trip() -> None:
    module = parse_model(TEXT).build()
    weights = {name: x.numpy().copy() for name, x in module.state_dict().items()}
    there = to_channels_last(weights)
    assert "lm_head.weight" not in there  # it is tied to the embedding table
    back = from_channels_last(there, weights)
    assert set(back) == set(weights)
    assert all((back[name] == weights[name]).all() for name in weights)
