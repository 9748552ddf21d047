"""Schemes of mit-han-lab/tiny-training: the parameters that they train, and their published cost.

A scheme numbers convolutions from 0 in the order of the forward pass. The last `n_bias_update`
train their biases. Those listed in `manual_weight_idx` also train the share `weight_update_ratio`
of their weights' input channels (of a depthwise one's channels); a share of 0 adds nothing. The
classifier always trains. `convert` turns this into a scheme of names; `saved_bits` is their memory
model, with which the published budgets were searched.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pockengine.compiler.ir.graph import Graph, Node
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.sparse.bias import bias_of
from pockengine.compiler.sparse.choice import FULL, ParamChoice
from pockengine.compiler.sparse.presets import blocks_of
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.errors import SchemeError

PUBLISHED = Path(__file__).parent / "tiny_training.toml"
CRITERIA = {"magnitude+": "magnitude", "random": "random"}
"""tiny-training's names of criteria for choosing channels, and ours."""
LISTS = ("manual_weight_idx", "weight_update_ratio")

Shares = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Config:
    """A scheme: biases of the last `biases` convolutions, and (index, share) of weights.

    A share above 1 is a number of channels.
    """

    biases: int
    weights: Shares
    by: str = "magnitude"


@dataclass(frozen=True)
class Published:
    """One of the 15 published schemes: its net, and its budget in KB."""

    net: str
    budget_kb: int
    config: Config

    def __str__(self) -> str:
        return f"{self.net} at {self.budget_kb} KB"


@dataclass(frozen=True)
class Widths:
    """Bits per element of saved or trained tensors; a mask marks where a clamp was open."""

    activation: int
    weight: int
    bias: int = 32
    mask: int = 1


INT8 = Widths(activation=8, weight=8)
F32 = Widths(activation=32, weight=32)


@dataclass(frozen=True)
class Saved:
    """Bits that a step saves for its backward pass, and bits of its trained tensors."""

    activations: int
    weights: int

    @property
    def kilobytes(self) -> float:
        """The sum of both in KB of 1024 bytes, the unit of the budgets."""
        return (self.activations + self.weights) / 8 / 1024


def published() -> tuple[Published, ...]:
    """Return the 15 schemes that tiny-training ships."""
    schemes = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))["scheme"]
    return tuple(
        Published(scheme.pop("net"), scheme.pop("budget_kb"), read_config(scheme, PUBLISHED.name))
        for scheme in schemes
    )


def read_config(table: Mapping[str, Any], where: str) -> Config:
    """Read a `backward_config`; lists may be text, as on tiny-training's command line ("21-24-27").

    SchemeError for a config with more than trained weights and biases.
    """
    known = {"enable_backward_config", "n_bias_update", "weight_select_criteria", *LISTS}
    unread = sorted(word for word in set(table) - known if table[word])
    if unread:
        raise SchemeError(f"{where}: cannot read {unread}; list the weights in manual_weight_idx")
    biases, by = table.get("n_bias_update"), table.get("weight_select_criteria", "magnitude+")
    indices, ratios = (_numbers(table.get(word, ()), f"{where}: {word}") for word in LISTS)
    if type(biases) is not int or biases < 0 or len(indices) != len(ratios):
        raise SchemeError(
            f"{where}: needs a whole n_bias_update (not {biases!r}), and as many ratios as indices "
            f"(not {len(ratios)} for {len(indices)})"
        )
    if by not in list(CRITERIA):
        raise SchemeError(f"{where}: the criterion is {' or '.join(CRITERIA)}, not {by!r}")
    if sorted(set(indices)) != indices or any(index != int(index) for index in indices):
        raise SchemeError(f"{where}: manual_weight_idx {indices} must be whole and rising")
    weights = tuple((int(index), ratio) for index, ratio in zip(indices, ratios, strict=True))
    return Config(biases, weights, CRITERIA[by])


def _numbers(value: object, where: str) -> list[float]:
    """Read a list of numbers, or a text of numbers separated by "-"; none is negative."""
    items: Sequence[object] = value.split("-") if isinstance(value, str) else value  # type: ignore[assignment]
    try:
        numbers = [float(item) for item in items]  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise SchemeError(f"{where} = {value!r}: expected numbers ({error})") from error
    if any(not 0 <= number < 1e9 for number in numbers):
        raise SchemeError(f"{where} = {value!r}: no number may be below 0 or above 1e9")
    return numbers


def convert(config: Config, graph: Graph, name: str) -> Scheme:
    """Return the names that a tiny-training scheme trains in a forward graph.

    SchemeError if the graph has too few convolutions, or a trained bias is missing. As in
    tiny-training, a weight may only train if its bias does.
    """
    convs = _convolutions(config, graph, name)
    rules = [(param, FULL) for param in blocks_of(graph)[-1]]
    for index in range(len(convs) - config.biases, len(convs)):
        rules.append((_bias(graph, convs[index], name), FULL))
    for index, ratio in config.weights:
        count, trained = _channels(convs[index], ratio, name)
        if trained:
            choice = (
                FULL
                if trained == count
                else ParamChoice("share", share=trained / count, by=config.by)
            )
            rules.append((_weight(graph, convs[index], name), choice))
    return Scheme(name, tuple(rules))


def saved_bits(config: Config, graph: Graph, widths: Widths = INT8) -> Saved:
    """Return what a training step saves for one batch by their model, `nelem_saved_for_backward`.

    For each trained convolution: a mask of its output, its bias, and for a trained weight the
    trained channels with those of its input. For the classifier: only its input.
    """
    convs = _convolutions(config, graph, "tiny-training")
    shares = dict(config.weights)
    head = graph.params[blocks_of(graph)[-1][0]].value
    activations, weights = head.shape[0] * widths.activation, 0
    for index in range(len(convs) - config.biases, len(convs)):
        (x, weight), y = convs[index].operands, convs[index].result
        activations += y.type.size * widths.mask
        weights += y.shape[-1] * widths.bias
        count, trained = _channels(convs[index], shares.get(index, 0.0), "tiny-training")
        activations += x.type.size // count * trained * widths.activation
        weights += weight.type.size // count * trained * widths.weight
    return Saved(activations, weights)


def _convolutions(config: Config, graph: Graph, name: str) -> list[Node]:
    """Return the graph's convolutions in order; SchemeError if the config does not fit."""
    convs = [node for node in graph.nodes if _is_convolution(node)]
    first = len(convs) - config.biases
    if first < 0:
        raise SchemeError(
            f"scheme {name}: {config.biases} biases of {graph.name}, "
            f"which has {len(convs)} convolutions"
        )
    for index, _ in config.weights:
        if not first <= index < len(convs):
            raise SchemeError(
                f"scheme {name}: the weight of convolution {index} should train, but only "
                f"convolutions {first} to {len(convs) - 1} train their biases"
            )
    return convs


def _is_convolution(node: Node) -> bool:
    """Whether a node is a layer whose weight slides over a picture."""
    definition = lookup(node.op)
    return definition.layer is not None and definition.window


def _channels(conv: Node, ratio: float, name: str) -> tuple[int, int]:
    """Return a weight's number of input channels (depthwise: channels), and how many train."""
    count = conv.operands[0].shape[-1]
    if conv.attrs["groups"] not in (1, count):
        raise SchemeError(f"scheme {name}: {conv} is neither dense nor depthwise")
    trained = int(count * ratio) if ratio <= 1 else int(ratio)
    if trained > count:
        raise SchemeError(f"scheme {name}: {trained} channels of {conv}, which has {count}")
    return count, trained


def _weight(graph: Graph, conv: Node, name: str) -> str:
    param = graph.param_of(conv.operands[1])
    if param is None or not param.trainable:
        raise SchemeError(f"scheme {name}: the weight of {conv} is no parameter of the model")
    return param.name


def _bias(graph: Graph, conv: Node, name: str) -> str:
    """Return the bias added to a convolution's result: its own, or that of the norm after it."""
    bias = bias_of(graph, graph.users(), conv)
    if bias is None:
        raise SchemeError(f"scheme {name}: {conv} has no bias that could train")
    return bias
