"""LoRA: a frozen weight W gains a product of two small trained ones, W + scale A B.

Before differentiation every reader `y = x W` becomes `y = x W + (scale x A) B`, A [in, rank] and
B [rank, out] being params `<weight>.lora_A` and `<weight>.lora_B`; a convolution's A has its window
and its B is pointwise. A starts Kaiming-uniform as PEFT's does, B at zero, so the first step is the
model's own. Nothing later knows of adapters: they are params as others, and W has no gradient.
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.graph import Graph, Node, Param, Value, resolve
from pockengine.compiler.sparse.choice import FULL, LORA, parse_choice
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.errors import SchemeError

LINEAR, CONV = (1, 0), (2, 3, 1, 0)
"""Permutations of the factors: PEFT has A [rank, in] or [rank, in, KH, KW], B [out, rank]."""


@dataclass(frozen=True)
class Adapter:
    """A weight's two factors. `transposed`: a linear weight that lies in the graph as [out, in]."""

    weight: str
    rank: int
    alpha: float
    seed: int = 0
    transposed: bool = False

    @property
    def a(self) -> str:
        """Name of the factor that reads the layer's input."""
        return f"{self.weight}.lora_A"

    @property
    def b(self) -> str:
        """Name of the factor that makes the layer's output."""
        return f"{self.weight}.lora_B"

    @property
    def scale(self) -> float:
        """What the product is multiplied by."""
        return self.alpha / self.rank


def lora(
    rank: int,
    alpha: float,
    targets: Sequence[str],
    trained: Sequence[str] = (),
    *,
    seed: int = 0,
    name: str = "lora",
) -> Scheme:
    """Make a scheme: adapters beside the weights of these patterns, `trained` params as they are.

    SchemeError when rank or alpha are not above zero.
    """
    choice = parse_choice({LORA: rank, "alpha": alpha, "seed": seed}, f"scheme {name}")
    rules = [*((target, choice) for target in targets), *((param, FULL) for param in trained)]
    return Scheme(name, tuple(rules))


def with_adapters(
    forward: Graph, scheme: Scheme
) -> tuple[Graph, dict[str, Channels], tuple[Adapter, ...]]:
    """Return the graph that trains by this scheme, its trained params, and its adapters.

    Without adapters the graph is `forward` itself. SchemeError as `Scheme.resolve` has it, or for a
    weight that cannot have an adapter.
    """
    trained = scheme.resolve(forward)
    adapters = tuple(
        _adapter(scheme, forward, forward.params[name])
        for name, choice in scheme.choices(forward).items()
        if choice.kind == LORA
    )
    if not adapters:
        return forward, trained, ()
    graph = clone(forward)
    _insert(graph, adapters)
    for adapter in adapters:
        trained[adapter.a] = trained[adapter.b] = None
    return graph, trained, adapters


def merged(
    graph: Graph, adapters: tuple[Adapter, ...], values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return `values` with every adapter's product added to its weight, and without the factors.

    A weight that `values` lacks was folded away at compile time and is taken from the graph.
    """
    result = dict(values)
    for adapter in adapters:
        a, b = (result.pop(name).astype(np.float64) for name in (adapter.a, adapter.b))
        product = adapter.scale * (a @ b.reshape(b.shape[-2:]))
        weight = values.get(adapter.weight, graph.params[adapter.weight].data)
        result[adapter.weight] = (weight + (product.T if adapter.transposed else product)).astype(
            weight.dtype
        )
    return result


def _adapter(scheme: Scheme, graph: Graph, param: Param) -> Adapter:
    """Check that this weight can have an adapter of its choice's rank."""
    choice = scheme.choices(graph)[param.name]
    readers = [node for node in graph.nodes if param.value in node.operands]
    problem = next((text for node in readers if (text := _problem(node, param.value))), None)
    if problem is None and not readers:
        problem = "nothing reads it"
    where = f"scheme {scheme.name}: {param.name} {param.value.type} cannot have a LoRA adapter: "
    if problem is not None:
        raise SchemeError(f"{where}{problem}; it is for linear layers and ungrouped convolutions")
    shape = param.value.shape
    limit = min(math.prod(shape[:-1]), shape[-1])
    if choice.rank > limit:
        raise SchemeError(f"{where}rank {choice.rank} is above {limit}, its smaller side")
    transposed = bool(readers[0].attrs.get("transpose_b"))
    return Adapter(param.name, choice.rank, choice.alpha, choice.seed, transposed)


def _problem(node: Node, weight: Value) -> str | None:
    """What keeps this reader of a weight from having an adapter, if anything does."""
    if node.op not in READERS:
        kind = {"take": "an embedding", "add": "a bias"}.get(node.op)
        return f"{node.op} reads it" + (f", as {kind}" if kind else "")
    if node.operands.index(weight) != 1 or node.operands[0] is weight:
        return f"it is no right-hand operand of {node.op}"
    if node.op == "conv2d" and node.attrs["groups"] != 1:
        return f"its convolution has {node.attrs['groups']} groups"
    return None if len(weight.shape) == (4 if node.op == "conv2d" else 2) else "it is no matrix"


def _insert(graph: Graph, adapters: tuple[Adapter, ...]) -> None:
    """Declare the factors and add their product to every reader of their weights."""
    g = Builder(graph)
    factors = {}
    for adapter in adapters:
        param = graph.params[adapter.weight]
        factors[param.value] = (adapter, *_declare(g, adapter, param))
    nodes: list[Node] = []
    replacement: dict[Value, Value] = {}
    with g.into(nodes):
        for node in list(graph.nodes):
            node.operands = tuple(resolve(value, replacement) for value in node.operands)
            nodes.append(node)
            known = factors.get(node.operands[1]) if len(node.operands) > 1 else None
            if known is not None:
                with g.scope(node.scope):
                    product = READERS[node.op](g, node, *known)
                    replacement[node.result] = g.add(node.result, product)
    graph.nodes[:] = nodes
    graph.outputs = {name: resolve(value, replacement) for name, value in graph.outputs.items()}


def _declare(g: Builder, adapter: Adapter, param: Param) -> tuple[Value, Value]:
    shape = param.value.shape
    conv = len(shape) == 4
    inner, out = shape[:-1], shape[-1]
    if adapter.transposed:
        inner, out = (shape[1],), shape[0]
    permutation = CONV if conv else LINEAR
    random = np.random.default_rng([adapter.seed, zlib.crc32(adapter.weight.encode())])
    bound = 1 / math.sqrt(math.prod(inner))  # kaiming_uniform_(a=sqrt(5)), as nn.Linear has it
    a = random.uniform(-bound, bound, (*inner, adapter.rank)).astype(np.float32)
    b = np.zeros((1, 1, adapter.rank, out) if conv else (adapter.rank, out), np.float32)
    return (
        g.param(adapter.a, a, permutation=permutation),
        g.param(adapter.b, b, permutation=permutation),
    )


def _linear(g: Builder, node: Node, adapter: Adapter, a: Value, b: Value) -> Value:
    """Read the factors as the layer reads its weight; a tied layer may read it the other way."""
    x, flipped = node.operands[0], node.attrs["transpose_b"] != adapter.transposed
    first, second = (b, a) if flipped else (a, b)
    hidden = g.matmul(x, first, transpose_a=node.attrs["transpose_a"], transpose_b=flipped)
    return g.matmul(_scaled(g, hidden, adapter), second, transpose_b=flipped)


def _conv(g: Builder, node: Node, adapter: Adapter, a: Value, b: Value) -> Value:
    hidden = g.conv2d(node.operands[0], a, **node.attrs)
    return g.conv2d(_scaled(g, hidden, adapter), b)


def _scaled(g: Builder, hidden: Value, adapter: Adapter) -> Value:
    return hidden if adapter.scale == 1 else g.mul(hidden, g.scalar(adapter.scale))


READERS: dict[str, Callable[[Builder, Node, Adapter, Value, Value], Value]] = {
    "matmul": _linear,
    "conv2d": _conv,
}
"""What builds (scale x A) B beside each kind of reader."""
