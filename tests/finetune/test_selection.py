"""Channels selected by data: compiled scores compared with NumPy, and the resulting scheme."""

from pathlib import Path

import numpy as np
import pytest

from pockengine.api import compile
from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import F32, I64, Builder, TensorType
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.sparse import ParamChoice, Scheme, load_scheme, save_scheme
from pockengine.compiler.sparse.scheme import FULL
from pockengine.errors import FinetuneError
from pockengine.finetune.selection import channel_scores, list_channels
from pockengine.finetune.task import Examples
from pockengine.tests.compiler.small_nets import NetBuilder
from pockengine.tests.finetune.tiny import BATCH, digits, tiny_subject

WEIGHTS = ("layers.1.weight", "head.weight")


def batches(examples: Examples) -> list[dict[str, np.ndarray]]:
    return [
        {"x": examples.inputs["x"][at : at + BATCH], "target": examples.labels[at : at + BATCH]}
        for at in range(0, len(examples) - BATCH + 1, BATCH)
    ]


def test_activation_scores_are_mean_squares_of_the_input() -> None:
    subject, examples = tiny_subject(), digits(40)
    found = channel_scores(subject.graph, WEIGHTS, "activation", examples)
    graph = clone(subject.graph)
    readers = {
        name: next(n for n in graph.nodes if graph.params[name].value in n.operands)
        for name in WEIGHTS
    }
    graph.outputs = {name: node.operands[0] for name, node in readers.items()}
    read = [run(graph, batch) for batch in batches(examples)]
    assert len(read) == 2
    for name in WEIGHTS:
        whole = np.concatenate([batch[name] for batch in read])
        expected = np.square(whole, dtype=np.float64).mean(axis=tuple(range(whole.ndim - 1)))
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)


@pytest.mark.parametrize("groups", [1, 4])
def test_activation_scores_of_reshaped_weights_are_of_their_channels(groups: int) -> None:
    net = NetBuilder("volumes")
    x = net.g.input("x", TensorType(F32, (BATCH, 5, 5, 12)))
    shape = (1, 2, 3, 4 // groups, 4)  # three slices of depth, each of four channels
    weight = net.weight("weight", *shape)
    kernel = net.g.reshape(weight, shape=(1, 2, 12 // groups, 4))
    y = net.g.reduce_mean(net.g.conv2d(x, kernel, groups=groups), axes=(1, 2))
    target = net.g.input("target", TensorType(I64, (BATCH,)))
    net.g.output("loss", net.g.cross_entropy(y, target))
    data = np.random.default_rng(0).standard_normal((BATCH, 5, 5, 12)).astype(np.float32)
    examples = Examples({"x": data}, np.arange(BATCH) % 4)

    found = channel_scores(net.g.graph, ["weight"], "activation", examples)

    squares = np.square(data).mean(axis=(0, 1, 2))
    expected = squares.reshape(3, 4).mean(0) if groups == 1 else squares.reshape(4, 3).mean(1)
    np.testing.assert_allclose(found["weight"], expected, rtol=1e-5)


def test_fisher_scores_are_squared_gradients_summed_per_channel() -> None:
    subject, examples = tiny_subject(), digits(40)
    found = channel_scores(subject.graph, WEIGHTS, "fisher", examples)
    graph = clone(subject.graph)
    wrt = {graph.params[name].value: None for name in WEIGHTS}
    for value, gradient in backward(Builder(graph), graph.outputs["loss"], wrt).items():
        graph.outputs[f"d {value.name}"] = gradient
    results = [run(graph, batch) for batch in batches(examples)]
    conv = np.mean([np.square(g["d layers.1.weight"]).sum(axis=(0, 1, 3)) for g in results], axis=0)
    head = np.mean([np.square(g["d head.weight"]).sum(axis=1) for g in results], axis=0)
    np.testing.assert_allclose(found["layers.1.weight"], conv, rtol=1e-4)
    np.testing.assert_allclose(found["head.weight"], head, rtol=1e-4)


@pytest.mark.parametrize("by", ["activation", "fisher"])
def test_shares_select_the_channels_of_highest_score(by: str, tmp_path: Path) -> None:
    subject, examples = tiny_subject(), digits(32)
    share = ParamChoice("share", share=0.25)
    scheme = Scheme("part", (("layers.1.weight", share), ("head.*", FULL)))
    scores = channel_scores(subject.graph, WEIGHTS, by, examples)["layers.1.weight"]
    chosen = list_channels(scheme, {"layers.1.weight": (share, scores)})
    assert set(chosen.choices(subject.graph)["layers.1.weight"].channels) == set(
        np.argsort(-scores)[:2]
    )
    save_scheme(chosen, tmp_path / "chosen.toml")
    saved = load_scheme(tmp_path / "chosen.toml")
    with compile(subject.graph, (), scheme=saved).session() as session:
        before = session.get_param("layers.1.weight")
        session.train_step(batches(examples)[0], lr=0.1)
        moved = np.abs(session.get_param("layers.1.weight") - before).sum(axis=(0, 1, 3)) > 0
    assert set(np.flatnonzero(moved)) == set(np.argsort(-scores)[:2])


def test_invalid_scores_are_an_error() -> None:
    subject = tiny_subject()
    with pytest.raises(FinetuneError, match="use activation or fisher"):
        channel_scores(subject.graph, WEIGHTS, "taste", digits(32))
    with pytest.raises(FinetuneError, match="15 examples fill no batch of 16"):
        channel_scores(subject.graph, WEIGHTS, "fisher", digits(15))
