"""Starting points of a warm search: greedy orders, cut at the budget.

A genome encodes a choice: the number of a bias set, then of an option of each weight; 0 for none. A
step of an order adds one option; a prefix of an order is its first steps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pockengine.compiler.ir import Graph
from pockengine.finetune.contributions import Contributions, Item
from pockengine.finetune.space import SearchSpace, biases_of, layers_of

Genome = tuple[int, ...]


@dataclass(frozen=True)
class GainStep:
    """An option, and its increment over the previous one of the same weight (or bias set).

    `saved_bytes` are the activations that its gradient reads, `trained` its number of parameters.
    `depth` counts weights from the top; for a bias set it is the lowest weight at the same depth.
    """

    place: int
    gene: int
    gain: float
    saved_bytes: float
    trained: float
    depth: float


ORDERS: tuple[Callable[[GainStep], float], ...] = (
    lambda step: -step.gain / (step.saved_bytes + 1),
    lambda step: -step.gain / (step.trained + 1),
    lambda step: -step.gain,
    lambda step: step.depth,
)
"""By gain per saved byte, by gain per trained number, by gain alone, and from the top down.

The dominant memory differs: optimizer states with small batches, saved activations with large ones.
For other models it is the activations that the backward pass to a deep weight needs.
"""


def longest_prefixes(
    space: SearchSpace,
    contributions: Contributions,
    graph: Graph,
    fits: Callable[[Genome], bool],
) -> Iterator[Genome]:
    """Yield the longest prefix of each order that fits, found by bisection."""
    steps = list(_steps(space, contributions, graph))
    for key in ORDERS:
        order = sorted(steps, key=key)
        shorter, longer = 0, len(order) + 1
        while longer - shorter > 1:
            middle = (shorter + longer) // 2
            if fits(_genome(space, order[:middle])):
                shorter = middle
            else:
                longer = middle
        yield _genome(space, order[:shorter])


def _genome(space: SearchSpace, steps: list[GainStep]) -> Genome:
    genes = [0] * (1 + len(space.weights))
    for step in steps:
        genes[step.place] = max(genes[step.place], step.gene)
    return tuple(genes)


def _steps(space: SearchSpace, contributions: Contributions, graph: Graph) -> Iterator[GainStep]:
    """Yield all steps; each option of a weight is measured relative to the previous one."""
    sizes = {name: param.value.type.size for name, param in graph.params.items()}
    saved = {layer.weight: layer.saved_bytes for layer in layers_of(graph)}

    def takes(item: Item) -> tuple[float, float]:
        if item.kind == "biases":
            return 0.0, float(sum(sizes[name] for name in biases_of(graph, item)))
        return item.share * saved[item.name], item.share * sizes[item.name]

    count = len(space.weights)
    for place, options in enumerate((space.biases, *space.weights)):
        gain = byte = number = 0.0
        for gene, item in enumerate(options, 1):
            bytes_, numbers = takes(item)
            mean = contributions.gains[item].mean
            depth = count - place if place else count * gene / len(options)
            yield GainStep(
                place,
                gene,
                mean - gain,
                saved_bytes=bytes_ - byte,
                trained=numbers - number,
                depth=depth,
            )
            gain, byte, number = mean, bytes_, numbers
