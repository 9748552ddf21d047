"""LoRA: add a product of two small trained matrices to a frozen weight, W + scale A B.

Before differentiation every reader `y = x W` becomes `y = x W + (scale x A) B`, A [in, rank] and B
[rank, out] being params `<weight>.lora_A` and `<weight>.lora_B`; a convolution's A has its window
and its B is pointwise. A starts Kaiming-uniform as PEFT's does, B at zero, so the first step is the
model's own. Later stages treat adapters as ordinary params; W has no gradient.
"""

import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.graph import Graph, Node, Param, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ops.registry import Layer, lookup
from pockengine.compiler.sparse.bias import is_added
from pockengine.compiler.sparse.choice import FULL, LORA, VARIANTS, ParamChoice, parse_choice
from pockengine.compiler.sparse.dora import Magnitudes, Norms, refusal, rescaled_weight
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.errors import SchemeError

PACKED = "in_proj_weight"
"""Name of nn.MultiheadAttention's packed weight for queries, keys and values."""

FACTOR_ORDERS = {2: (1, 0), 3: (2, 1, 0), 4: (2, 3, 1, 0), 5: (3, 4, 2, 1, 0)}
"""Permutations of factors by their rank: PEFT has A [rank, in] or [rank, in, KH, KW], B [out, rank]
or [out, rank, 1, 1], and likewise in one and three dimensions.
"""


@dataclass(frozen=True)
class Adapter:
    """A weight's two factors. `transposed`: a linear weight stored in the graph as [out, in].

    `dora`: its outputs have magnitudes (dora.py). `rslora`: the scale is alpha / sqrt(rank)
    (Kalajdzievski, 2023; arXiv:2312.03732).
    """

    weight: str
    rank: int
    alpha: float
    seed: int = 0
    transposed: bool = False
    dora: bool = False
    rslora: bool = False

    @property
    def a(self) -> str:
        """Name of the factor A, applied to the layer's input."""
        return f"{self.weight}.lora_A"

    @property
    def b(self) -> str:
        """Name of the factor B, which produces the layer's output."""
        return f"{self.weight}.lora_B"

    @property
    def scale(self) -> float:
        """The factor of the product."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

    @property
    def plain_alpha(self) -> float:
        """The alpha of an adapter of the same scale without rsLoRA."""
        return self.alpha * math.sqrt(self.rank) if self.rslora else self.alpha

    @property
    def kind(self) -> str:
        """Its kind by name, as in presets."""
        return " ".join(name for name in VARIANTS if getattr(self, name)) or LORA

    @property
    def magnitude(self) -> str:
        """Name of DoRA's magnitudes of the outputs."""
        return f"{self.weight}.lora_magnitude"

    @property
    def squares(self) -> str:
        """Name of the squared norms of the weight, which DoRA needs and never changes."""
        return f"{self.weight}.lora_squares"

    @property
    def trained(self) -> tuple[str, ...]:
        """Names of its trained params."""
        return (self.a, self.b, *([self.magnitude] if self.dora else []))

    @property
    def params(self) -> tuple[str, ...]:
        """Names of all its params."""
        return (*self.trained, *([self.squares] if self.dora else []))


Factors = tuple[Adapter, Value, Value]
"""An adapter with its A and B, or slices of them."""


def packed_attention(names: Collection[str], weight: str) -> str | None:
    """Return the nn.MultiheadAttention module of this packed or output weight, by param names."""
    for leaf, other in ((f".{PACKED}", ".out_proj.weight"), (".out_proj.weight", f".{PACKED}")):
        module = weight.removesuffix(leaf)
        if module != weight and f"{module}{other}" in names:
            return module
    return None


def lora(
    rank: int,
    alpha: float,
    targets: Sequence[str],
    trained: Sequence[str] = (),
    *,
    seed: int = 0,
    name: str = "lora",
    dora: bool = False,
    rslora: bool = False,
) -> Scheme:
    """Make a scheme with adapters for the weights of these patterns; `trained` params train fully.

    SchemeError unless rank and alpha are positive.
    """
    variants = {"dora": dora, "rslora": rslora}
    choice = parse_choice({LORA: rank, "alpha": alpha, "seed": seed, **variants}, f"scheme {name}")
    rules = [*((target, choice) for target in targets), *((param, FULL) for param in trained)]
    return Scheme(name, tuple(rules))


def with_adapters(
    forward: Graph, scheme: Scheme
) -> tuple[Graph, dict[str, Channels], tuple[Adapter, ...]]:
    """Return the graph that trains by this scheme, its trained params, and its adapters.

    Without adapters the graph is `forward` itself. SchemeError as in `Scheme.resolve`, or for a
    weight that cannot have an adapter.
    """
    trained = scheme.resolve(forward)
    users = forward.users()
    adapters = tuple(
        _adapter(scheme.name, choice, forward.params[name], users)
        for name, choice in scheme.choices(forward).items()
        if choice.kind == LORA
    )
    if not adapters:
        return forward, trained, ()
    graph = clone(forward)
    add_adapters(graph, adapters)
    for adapter in adapters:
        trained.update(dict.fromkeys(adapter.trained))
    return graph, trained, adapters


def add_adapters(graph: Graph, adapters: Sequence[Adapter]) -> None:
    """Declare the factors and add their product to every reader of their weights."""
    g = Builder(graph)
    factors: dict[Value, Factors] = {}
    magnitudes: dict[Value, Magnitudes] = {}
    for adapter in adapters:
        param = graph.params[adapter.weight]
        factors[param.value] = (adapter, *_declare(g, adapter, param))
        if adapter.dora:
            magnitudes[param.value] = _declare_magnitudes(g, adapter, param)

    def adapted(g: Builder, node: Node) -> Sequence[Value] | None:
        weight = next((value for value in node.operands if value in factors), None)
        if weight is None:
            return None
        adapter, a, b = factors[weight]
        g.append(node)
        if node.op == "slice":
            factors[node.result] = _sliced(g, node, adapter, a=a, b=b)
            return node.results
        if node.op == "reshape":
            factors[node.result] = adapter, a, b
            return node.results
        if len(weight.shape) > 2:
            a, b = _as_kernels(g, weight, a, b)
        product = _layer(node).low_rank(g, node, (a, b), adapter.transposed, adapter.scale)
        y = g.add(node.result, product)
        if weight in magnitudes:
            return (magnitudes[weight].rescaled(g, node, (a, b, adapter.scale), y),)
        return (y,)

    rewrite(graph, adapted)


def merged(adapters: Sequence[Adapter], values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return `values` with every adapter's product added to its weight, and without the factors."""
    result = dict(values)
    for adapter in adapters:
        result.pop(adapter.squares, None)
        a, b, *magnitude = (result.pop(name).astype(np.float64) for name in adapter.trained)
        weight = values[adapter.weight]
        whole = weight.T if adapter.transposed else weight
        whole = whole + adapter.scale * (a @ b.reshape(b.shape[-2:]))
        if magnitude:
            whole = rescaled_weight(whole, *magnitude)
        result[adapter.weight] = (whole.T if adapter.transposed else whole).astype(weight.dtype)
    return result


def with_folded(
    graph: Graph, adapters: Sequence[Adapter], values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return `values` with the adapted weights that were folded away at compile time."""
    return {**{each.weight: graph.params[each.weight].data for each in adapters}, **values}


def _adapter(
    scheme: str, choice: ParamChoice, param: Param, users: Mapping[Value, list[Node]]
) -> Adapter:
    """Check that this weight can have an adapter of its choice's rank."""
    readers = _readers(users, param.value)
    problem = next((text for node, value in readers if (text := _problem(node, value))), None)
    out = param.value.shape[-1:]
    if any(len(value.shape) > 2 and value.shape[-1:] != out for _, value in readers):
        problem = problem or "its outputs are reshaped"
    if problem is None and not readers:
        problem = "nothing reads it"
    where = f"scheme {scheme}: {param.name} {param.value.type} cannot have a LoRA adapter: "
    if problem is not None:
        raise SchemeError(f"{where}{problem}; it is for linear layers and ungrouped convolutions")
    shape = param.value.shape
    problem = refusal(shape, readers, param.value) if choice.dora else None
    if problem is not None:
        raise SchemeError(f"{where}{problem}; leave dora out")
    limit = min(math.prod(shape[:-1]), shape[-1])
    if choice.rank > limit:
        raise SchemeError(f"{where}rank {choice.rank} is above {limit}, its smaller side")
    transposed = _layer(readers[0][0]).transposed(readers[0][0])
    return Adapter(
        param.name,
        choice.rank,
        choice.alpha,
        seed=choice.seed,
        transposed=transposed,
        dora=choice.dora,
        rslora=choice.rslora,
    )


def _readers(users: Mapping[Value, list[Node]], weight: Value) -> list[tuple[Node, Value]]:
    """Return the readers of a weight and the value they read.

    It may be a slice of a matrix, or the reshaped kernel of a 1D or 3D convolution.
    """
    found = []
    for node in users.get(weight, ()):
        sliced = node.op == "slice" and len(weight.shape) == 2
        kernel = node.op == "reshape" and min(len(weight.shape), len(node.result.shape)) > 2
        if sliced or kernel:
            found += _readers(users, node.result)
        else:
            found.append((node, weight))
    return found


def _problem(node: Node, weight: Value) -> str | None:
    """Why this reader of a weight cannot have an adapter, or None."""
    definition = lookup(node.op)
    if definition.layer is None:
        kind = "an embedding" if definition.indices else "a bias" if is_added(weight, node) else ""
        return f"{node.op} reads it" + (f", as {kind}" if kind else "")
    if [i for i, value in enumerate(node.operands) if value is weight] != [definition.layer.weight]:
        return f"it is no right-hand operand of {node.op}"
    refusal = definition.layer.refusal(node)
    if refusal is not None:
        return refusal
    return None if len(weight.shape) == definition.layer.rank else "it is no matrix"


def _declare(g: Builder, adapter: Adapter, param: Param) -> tuple[Value, Value]:
    shape = param.value.shape
    inner, out = shape[:-1], shape[-1]
    if adapter.transposed:
        inner, out = (shape[1],), shape[0]
    permutation, window = FACTOR_ORDERS.get(len(shape)), (1,) * (len(shape) - 2)
    random = np.random.default_rng([adapter.seed, zlib.crc32(adapter.weight.encode())])
    bound = 1 / math.sqrt(math.prod(inner))  # kaiming_uniform_(a=sqrt(5)), as in nn.Linear
    a = random.uniform(-bound, bound, (*inner, adapter.rank)).astype(np.float32)
    b = np.zeros((*window, adapter.rank, out), np.float32)
    return (
        g.param(adapter.a, a, permutation=permutation),
        g.param(adapter.b, b, permutation=permutation),
    )


def _declare_magnitudes(g: Builder, adapter: Adapter, param: Param) -> Magnitudes:
    norms = Norms(param.contents, axis=int(adapter.transposed), squared=False)
    magnitude = g.param(adapter.magnitude, norms)
    squares = g.param(adapter.squares, replace(norms, squared=True), trainable=False)
    return Magnitudes(magnitude, squares)


def _sliced(g: Builder, node: Node, adapter: Adapter, a: Value, b: Value) -> Factors:
    """Return the factors whose product is this slice of a weight."""
    inner, out = (1, 0) if adapter.transposed else (0, 1)
    ends = [node.attrs[end] for end in ("start", "stop", "step")]

    def cut(factor: Value, axis: int, by: int) -> Value:
        whole = ([0, 0], list(factor.shape), [1, 1])
        for end, numbers in zip(whole, ends, strict=True):
            end[axis] = numbers[by]
        if whole == ([0, 0], list(factor.shape), [1, 1]):
            return factor
        start, stop, step = map(tuple, whole)
        return g.slice(factor, start=start, stop=stop, step=step)

    return adapter, cut(a, 0, inner), cut(b, 1, out)


def _as_kernels(g: Builder, weight: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """Return the factors of a kernel for the layer that reads it in this shape."""
    *inner, out = weight.shape
    rank = a.shape[-1]
    shapes = (*inner, rank), (*(1,) * (len(inner) - 1), rank, out)
    first, second = (
        factor if factor.shape == shape else g.reshape(factor, shape=shape)
        for factor, shape in zip((a, b), shapes, strict=True)
    )
    return first, second


def _layer(node: Node) -> Layer:
    layer = lookup(node.op).layer
    assert layer is not None
    return layer
