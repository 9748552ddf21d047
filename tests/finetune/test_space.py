"""The search space: items of a model, and the scheme of selected items."""

import numpy as np
import pytest

from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.errors import SchemeError
from pockengine.finetune.contributions import Item
from pockengine.finetune.space import (
    TrainableLayer,
    bias_groups,
    items_of,
    layers_of,
    scheme_of,
    space_of,
)
from pockengine.tests.finetune.tiny import tiny_subject


def normed_graph() -> Graph:
    """Return a graph of an embedding table, a linear layer with its bias in a norm, and a head."""
    g = Builder(Graph("normed"))
    tokens = g.input("tokens", TensorType(I64, (4,)))
    table = g.param("embedding.weight", np.ones((7, 8), np.float32))
    weight = g.param("block.0.weight", np.ones((8, 6), np.float32))
    scale = g.param("block.1.weight", np.ones(6, np.float32))
    shift = g.param("block.1.bias", np.ones(6, np.float32))
    hidden = g.matmul(g.take(table, tokens, axis=0), weight)
    hidden = g.add(g.mul(hidden, scale), shift)
    logits = g.matmul(hidden, g.param("head.weight", np.ones((6, 3), np.float32)))
    target = g.input("target", TensorType(I64, (4,)))
    g.graph.outputs |= {"loss": g.cross_entropy(logits, target), "logits": logits}
    return g.graph


def test_layers_exclude_the_head_and_include_their_bias() -> None:
    layers = layers_of(tiny_subject().graph)

    assert [(layer.weight, layer.bias, layer.channels) for layer in layers] == [
        ("layers.0.weight", "layers.0.bias", 1),
        ("layers.1.weight", "layers.1.bias", 8),
    ]


def test_tables_are_not_layers_and_norm_biases_belong_to_layers() -> None:
    graph = normed_graph()

    assert [(layer.weight, layer.bias) for layer in layers_of(graph)] == [
        ("block.0.weight", "block.1.bias")
    ]
    assert bias_groups(graph, "layers") == [("block.1.bias",)]


def line_graph(*, doubled: bool = False) -> Graph:
    """Return a graph of a 1D convolution, whose kernel is read reshaped, and a head.

    With `doubled`, another op reads a reshaped copy of the kernel too.
    """
    g = Builder(Graph("line"))
    x = g.input("x", TensorType(F32, (2, 1, 8, 3)))
    weight = g.param("body.weight", np.ones((3, 3, 16), np.float32))
    kernel = g.reshape(weight, shape=(1, 3, 3, 16))
    hidden = g.reshape(g.conv2d(x, kernel, stride=(1, 1), padding=(0, 0, 0, 0)), shape=(2, 6, 16))
    hidden = g.add(hidden, g.param("body.bias", np.zeros(16, np.float32)))
    logits = g.matmul(
        g.reshape(hidden, shape=(2, 96)), g.param("head.weight", np.ones((96, 3), np.float32))
    )
    loss = g.cross_entropy(logits, g.input("target", TensorType(I64, (2,))))
    if doubled:
        loss = g.add(loss, g.reduce_sum(g.reshape(weight, shape=(144,)), axes=(0,)))
    g.graph.outputs |= {"loss": loss, "logits": logits}
    return g.graph


def test_kernels_that_are_read_reshaped_are_layers() -> None:
    graph = line_graph()
    (layer,) = layers_of(graph)
    items = items_of(graph, (0.5, 1.0))

    assert layer == TrainableLayer("body.weight", "body.bias", 3, 4 * 2 * 8 * 3)
    assert items[1:] == [
        Item("weight", "body.weight", 0.5, "magnitude"),
        Item("weight", "body.weight"),
    ]
    assert scheme_of(graph, items[:2]).resolve(graph)["body.bias"] is None
    assert layers_of(line_graph(doubled=True)) == ()


def test_shares_of_equal_channels_are_listed_once() -> None:
    items = items_of(tiny_subject().graph)

    assert items == [
        Item("biases", "last 1 blocks"),
        Item("biases", "last 2 blocks"),
        Item("weight", "layers.0.weight"),
        Item("weight", "layers.1.weight", 0.125, "magnitude"),
        Item("weight", "layers.1.weight", 0.25, "magnitude"),
        Item("weight", "layers.1.weight", 0.5, "magnitude"),
        Item("weight", "layers.1.weight"),
    ]


def test_upper_selects_the_layers_nearest_to_the_head() -> None:
    items = items_of(tiny_subject().graph, (1.0,), upper=0.5)

    assert items == [Item("biases", "last 1 blocks"), Item("weight", "layers.1.weight")]


def test_scheme_trains_head_items_and_their_biases() -> None:
    graph = tiny_subject().graph
    scheme = scheme_of(graph, [Item("weight", "layers.1.weight", 0.25, "leading")])

    assert scheme.resolve(graph) == {
        "layers.1.weight": range(2),
        "layers.1.bias": None,
        "head.weight": None,
        "head.bias": None,
    }


def test_empty_selection_trains_the_head() -> None:
    graph = tiny_subject().graph

    assert set(scheme_of(graph, []).resolve(graph)) == {"head.weight", "head.bias"}


def test_space_groups_items_by_weight() -> None:
    graph = tiny_subject().graph
    items = items_of(graph)
    space = space_of(graph, reversed(items))

    assert space.items == tuple(items)
    assert [len(options) for options in space.weights] == [1, 4]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (Item("weight", "layers.9.weight"), "'layers.9.weight' is no convolution"),
        (Item("weight", "head.weight"), "'head.weight' is no convolution"),
        (Item("biases", "last 3 blocks"), "with K from 1 to 2"),
        (Item("biases", "last 99999999999 blocks"), "is no set of biases"),
        (Item("weight", "layers.1.weight", 0.5, "charm"), "not by 'charm'"),
    ],
)
def test_error_names_an_item_of_another_model(item: Item, message: str) -> None:
    graph = tiny_subject().graph

    with pytest.raises(SchemeError, match=message):
        space_of(graph, [item])
    with pytest.raises(SchemeError, match=message):
        scheme_of(graph, [item])


def test_two_shares_of_one_weight_clash() -> None:
    items = [Item("weight", "layers.1.weight"), Item("weight", "layers.1.weight", 0.5, "magnitude")]

    with pytest.raises(SchemeError, match=r"layers\.1\.weight is chosen twice"):
        scheme_of(tiny_subject().graph, items)
