"""The search space of schemes for a model: last biases, and shares of weights.

The head (the block that the forward pass reads last) always trains. The options are

    biases    "last K blocks" or "last K layers": every bias of the last K, without the
              head's; for families without biases (LLaMA) the norms' weights instead
    weights   a share of the channels of one convolution or linear layer, chosen by a criterion

A chosen weight also trains its bias. Embedding tables are excluded: a table is read by index, so no
share of its channels saves an activation, and its gradient is as large as the vocabulary. In big
models `upper` restricts the search to the top share of the layers: a layer further down needs the
saved activations of all layers above it, which exceed any useful memory budget.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pockengine.compiler.channel_readers import before_reshapes
from pockengine.compiler.ir import Graph, Node, Param, Value
from pockengine.compiler.ops import lookup
from pockengine.compiler.sparse import ParamChoice, Scheme
from pockengine.compiler.sparse.bias import bias_of
from pockengine.compiler.sparse.channels import CRITERIA, channel_count
from pockengine.compiler.sparse.families import recognize
from pockengine.compiler.sparse.presets import blocks_of
from pockengine.compiler.sparse.scheme import FULL, channel_axis
from pockengine.errors import SchemeError
from pockengine.finetune.contributions import Item
from pockengine.finetune.selection import DATA_CRITERIA

SHARES = (0.125, 0.25, 0.5, 1.0)
WHOLE = ""
"""The criterion of an item that trains whole: all channels, or biases."""

MOST_BIAS_SETS = 12
UNITS = ("blocks", "layers")

GRAPHS = 4
"""Number of graphs whose blocks and layers are cached: a search queries the same forward graph
hundreds of times."""


@dataclass(frozen=True)
class TrainableLayer:
    """A convolution or linear layer: its weight, bias, and number of channels.

    `channels` is 0 if only the whole weight can train; `saved_bytes` is the activation that the
    gradient of the whole weight reads.
    """

    weight: str
    bias: str | None
    channels: int
    saved_bytes: int


@dataclass(frozen=True)
class SearchSpace:
    """The items to choose from: at most one of `biases`, and at most one per entry of `weights`.

    Bias sets are sorted by size, weights by the order of the forward pass, the options of a weight
    by their share.
    """

    biases: tuple[Item, ...]
    weights: tuple[tuple[Item, ...], ...]

    @property
    def items(self) -> tuple[Item, ...]:
        """All items."""
        return (*self.biases, *(item for options in self.weights for item in options))


def head_of(graph: Graph) -> tuple[str, ...]:
    """Return the parameters of the head, which always trains."""
    return _blocks(graph)[-1]


@lru_cache(maxsize=GRAPHS)
def _blocks(graph: Graph) -> tuple[tuple[str, ...], ...]:
    blocks = blocks_of(graph)
    if not blocks:
        raise SchemeError(f"graph {graph.name} has no trainable parameter; nothing can be chosen")
    return tuple(map(tuple, blocks))


@lru_cache(maxsize=GRAPHS)
def layers_of(graph: Graph) -> tuple[TrainableLayer, ...]:
    """Return the convolutions and linear layers below the head, in the order of the forward pass.

    A layer may read its weight reshaped, as a 1D convolution does. A weight that is also read by
    another op (a table tied to the output) is excluded.
    """
    head, users = set(head_of(graph)), graph.users()
    layers: dict[str, TrainableLayer] = {}
    for node in graph.nodes:
        layer = lookup(node.op).layer
        if layer is None:
            continue
        param = graph.param_of(before_reshapes(node.operands[layer.weight]))
        if param is None or not param.trainable or param.name in head:
            continue
        if any(lookup(reader.op).layer is None for reader in _readers(users, param.value)):
            continue
        saved_bytes, bias = node.operands[0].type.nbytes, bias_of(graph, users, node)
        layers.setdefault(
            param.name, TrainableLayer(param.name, bias, _channels(graph, param), saved_bytes)
        )
    return tuple(layers.values())


def _readers(users: Mapping[Value, list[Node]], value: Value) -> Iterator[Node]:
    """Yield the nodes that read a value or a reshaped copy of it."""
    for node in users.get(value, ()):
        if node.op == "reshape":
            yield from _readers(users, node.result)
        else:
            yield node


def _channels(graph: Graph, param: Param) -> int:
    try:
        return param.value.shape[channel_axis("search", graph, param)]
    except SchemeError:
        return 0


def bias_groups(graph: Graph, unit: str = "blocks") -> list[tuple[str, ...]]:
    """Return the biases below the head, by block or layer; groups without biases are omitted."""
    if unit not in UNITS:
        raise SchemeError(f"biases are counted in {' or '.join(UNITS)}, not in {unit!r}")
    own = {layer.bias for layer in layers_of(graph) if layer.bias}
    if unit == "layers":
        return [(layer.bias,) for layer in layers_of(graph) if layer.bias]
    blocks = _blocks(graph)
    family = recognize([name for block in blocks for name in block])
    known = own.union(family.biases if family is not None else ())
    groups = [
        tuple(name for name in block if name in known or name.endswith("bias"))
        for block in blocks[:-1]
    ]
    return [group for group in groups if group]


def items_of(
    graph: Graph,
    shares: Sequence[float] = SHARES,
    *,
    by: str = "magnitude",
    bias_sets: int = MOST_BIAS_SETS,
    upper: float = 1.0,
    upper_biases: float | None = None,
) -> list[Item]:
    """List the candidates: bias sets, then each weight at several shares of its channels.

    At most `bias_sets` bias sets are listed, evenly spaced. `upper` keeps that share of the layers,
    counted from the top, and `upper_biases` of the biases (by default the same). Shares with the
    same number of channels are listed once.
    """
    upper_biases = upper if upper_biases is None else upper_biases
    if not all(0 < share <= 1 for share in (upper, upper_biases, *shares)):
        raise SchemeError(
            f"shares {list(shares)} and upper {upper} and {upper_biases} must lie in (0, 1]"
        )
    layers = layers_of(graph)
    layers = layers[len(layers) - max(1, round(upper * len(layers))) :] if layers else ()
    groups = bias_groups(graph)
    most = max(1, round(upper_biases * len(groups))) if groups else 0
    steps = min(bias_sets, most)
    counts = dict.fromkeys(-(-most * (index + 1) // steps) for index in range(steps))
    biases = [Item("biases", f"last {count} blocks", 1.0, WHOLE) for count in counts]
    return [*biases, *(item for layer in layers for item in _options(layer, shares, by))]


def _options(layer: TrainableLayer, shares: Sequence[float], by: str) -> list[Item]:
    options: dict[int, Item] = {}
    for share in sorted(shares):
        if share == 1:
            options[layer.channels] = Item("weight", layer.weight, 1.0, WHOLE)
        elif layer.channels:
            count = channel_count(layer.channels, share)
            options.setdefault(count, Item("weight", layer.weight, share, by))
    return list(options.values())


def space_of(graph: Graph, items: Iterable[Item]) -> SearchSpace:
    """Group items into a space; SchemeError for an item that does not fit this model."""
    layers = {layer.weight: layer for layer in layers_of(graph)}
    options: dict[str, list[Item]] = {name: [] for name in layers}
    biases: list[Item] = []
    for item in items:
        if item.kind == "biases":
            biases_of(graph, item)
            biases.append(item)
        else:
            options[_layer(layers, item).weight].append(item)
    return SearchSpace(
        tuple(sorted(biases, key=lambda item: len(biases_of(graph, item)))),
        tuple(
            tuple(sorted(each, key=lambda item: item.share)) for each in options.values() if each
        ),
    )


def scheme_of(graph: Graph, items: Sequence[Item], name: str = "searched") -> Scheme:
    """Return the scheme that trains the head and these items; SchemeError if they clash.

    If there are several bias sets, all of them train.
    """
    layers = {layer.weight: layer for layer in layers_of(graph)}
    choices: dict[str, ParamChoice] = dict.fromkeys(head_of(graph), FULL)
    for item in items:
        if item.kind == "biases":
            choices |= dict.fromkeys(biases_of(graph, item), FULL)
    for item in items:
        if item.kind != "weight":
            continue
        layer = _layer(layers, item)
        if layer.weight in choices:
            raise SchemeError(f"{layer.weight} is chosen twice; choose one share of it")
        choices[layer.weight] = _choice(item)
        if layer.bias is not None:
            choices[layer.bias] = FULL
    ordered = [name for name in graph.params if name in choices]
    return Scheme(name, tuple((_literal(each), choices[each]) for each in ordered))


def _choice(item: Item) -> ParamChoice:
    return FULL if item.share == 1 else ParamChoice("share", share=item.share, by=item.by)


def biases_of(graph: Graph, item: Item) -> list[str]:
    """Return the biases of a bias item; SchemeError if this model has no such set."""
    match = re.fullmatch(r"last (\d{1,6}) (blocks|layers)", item.name)
    groups = bias_groups(graph, match[2]) if match else []
    if match is None or not 0 < int(match[1]) <= len(groups):
        raise SchemeError(
            f"{item.name!r} is no set of biases of {graph.name}; it is `last K blocks` or "
            f"`last K layers`, with K from 1 to {len(groups) or len(bias_groups(graph))}"
        )
    return [name for group in groups[-int(match[1]) :] for name in group]


def _layer(layers: Mapping[str, TrainableLayer], item: Item) -> TrainableLayer:
    layer = layers.get(item.name)
    if item.kind != "weight" or layer is None:
        raise SchemeError(
            f"{item.kind} {item.name!r} is no convolution or linear weight below the model's head; "
            "was it measured on another model?"
        )
    if item.share < 1 and not layer.channels:
        raise SchemeError(f"{item.name} cannot train a share of its channels, only the whole")
    if item.share < 1 and item.by not in (*CRITERIA, *DATA_CRITERIA):
        raise SchemeError(
            f"{item}: channels are chosen by {', '.join((*CRITERIA, *DATA_CRITERIA))}, not by "
            f"{item.by!r}"
        )
    return layer


def _literal(name: str) -> str:
    """Return a pattern that matches only this name."""
    return re.sub(r"([*?[])", r"[\1]", name)
