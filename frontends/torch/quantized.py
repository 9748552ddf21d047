"""Int8 modules of PyTorch 2 export quantization as the float modules that they represent.

`convert_pt2e` leaves operators of `quantized_decomposed`. A quantize and its dequantize become one
internal operator that rounds (aten/integers.py), or a clamp; integers that a dequantize reads of
the module become a parameter of the same name, and their quantization is returned beside it.
Anything else raises ImportModelError with its name and place.
"""

import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.fx import GraphModule, Node

from pockengine.compiler.ir.quantization import Quantization
from pockengine.errors import GraphError, ImportModelError
from pockengine.frontends.faults import check_own
from pockengine.frontends.integer_weights import WIDTHS, IntegerWeight, integer_weight
from pockengine.frontends.torch.decisions import copied_module
from pockengine.frontends.torch.nodes import arguments_of, module_path

LIBRARY = torch.library.Library("pockengine", "FRAGMENT")
LIBRARY.define("rounded(Tensor x, float scale, int zero, int low, int high) -> Tensor")
LIBRARY.impl("rounded", lambda x, *_: torch.empty_like(x), "CompositeExplicitAutograd")

QUANTIZE, DEQUANTIZE = (
    tuple(f"quantized_decomposed.{name}_per_{what}." for what in ("tensor", "channel"))
    for name in ("quantize", "dequantize")
)

TYPES = {
    getattr(torch, name): np.dtype(name) for name in ("int8", "uint8", "int16", "uint16", "int32")
}

SETTINGS = (("scales", "scale"), ("zero_points", "zero_point"), ("quant_min",), ("quant_max",))
"""Arguments of a range, by their names per channel and per tensor."""


@dataclass(frozen=True)
class _Range:
    """The quantization of a quantize or dequantize."""

    quantization: Quantization
    low: int
    high: int
    dtype: np.dtype


@dataclass
class _Rewriter:
    """One graph of a module, whose parameters' names begin with `prefix`."""

    part: GraphModule
    prefix: str
    integers: bool
    weights: dict[str, IntegerWeight]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    rounded: dict[Node, Node] = field(default_factory=dict)

    def run(self) -> None:
        """Rewrite the graph in place."""
        for node in _calls(self.part, DEQUANTIZE):
            node.replace_all_uses_with(self._real(node))
            self.part.graph.erase_node(node)
        for node in _calls(self.part, QUANTIZE):
            for user in node.users:
                raise _refused(node, f"{user.target} reads its integers; dequantize them before")
            self.part.graph.erase_node(node)
        self.part.recompile()

    def _real(self, node: Node) -> Node:
        """Return the node with the real numbers of a dequantize."""
        source, known = node.args[0], self._range(node)
        if str(source.target).startswith(QUANTIZE):
            if self._range(source) != known:
                raise _refused(node, "its range is another than that of the integers it reads")
            if source.args[0].op != "get_attr":
                return self._rounded(source, known)
            return self._weight(node, source.args[0], known)
        if source.op != "get_attr":
            raise _refused(node, f"it reads {source.target}, and no integers that are known")
        return self._weight(node, source, known)

    def _rounded(self, node: Node, known: _Range) -> Node:
        """Round real numbers to integers of 8 bits and back; or only clamp to their range."""
        if known.quantization.axis is not None or known.dtype not in WIDTHS:
            raise _refused(node, "an activation has one scale, and integers of 8 bits")
        (scale,), (zero,) = known.quantization.scales, known.quantization.zeros
        limits = known.low, known.high
        if node not in self.rounded:
            with self.part.graph.inserting_before(node):
                if self.integers:
                    places = (place - WIDTHS[known.dtype] for place in (zero, *limits))
                    target, numbers = torch.ops.pockengine.rounded.default, (scale, *places)
                else:
                    target = torch.ops.aten.clamp.default
                    numbers = tuple((limit - zero) * scale for limit in limits)
                made = self.part.graph.call_function(target, (node.args[0], *numbers))
            made.meta = {k: v for k, v in node.meta.items() if k != "val"}
            self.rounded[node] = made
        return self.rounded[node]

    def _weight(self, node: Node, source: Node, known: _Range) -> Node:
        """Replace integers in the module by a parameter of their real numbers; return its
        reader.
        """
        target = str(source.target)
        if target not in self.arrays:
            self.arrays[target] = self._without_integers(source)
        array, name = self.arrays[target], self.prefix + target
        in_file = array.dtype.kind != "f"
        if not in_file:
            array = _as(known, array)
        weight = integer_weight(known.quantization, array, in_file=in_file)
        if self.weights.setdefault(name, weight) != weight:
            raise _refused(node, f"{name} has another range elsewhere; copy the weight")
        owner, leaf = _owner(self.part, target)
        trainable = in_file or getattr(owner, leaf).requires_grad
        delattr(owner, leaf)
        real = torch.from_numpy(known.quantization.real(array))
        owner.register_parameter(leaf, nn.Parameter(real, requires_grad=trainable))
        return source

    def _range(self, node: Node) -> _Range:
        """Read an operator's settings, which must all be constants."""
        settings = arguments_of(node)
        scales, zeros, low, high = (
            self._numbers(node, next(settings[name] for name in names if name in settings))
            for names in SETTINGS
        )
        if settings["dtype"] not in TYPES:
            raise _refused(node, f"{settings['dtype']} is no type of integers of 32 bits or fewer")
        factors = map(float, scales.astype(np.float32))  # PyTorch's kernels compute in f32
        places = map(int, np.broadcast_to(zeros, scales.shape))
        try:
            quantization = Quantization(tuple(factors), tuple(places), settings.get("axis"))
        except GraphError as error:
            raise _refused(node, str(error)) from error
        return _Range(quantization, int(low[0]), int(high[0]), TYPES[settings["dtype"]])

    def _numbers(self, node: Node, argument: Any) -> np.ndarray:
        """Return a setting; zero points may be None, which are 0."""
        if isinstance(argument, Node):
            if argument.op != "get_attr":
                raise _refused(node, "its range is computed; quantize with is_dynamic=False")
            return self._without_integers(argument).reshape(-1)
        return np.array([0 if argument is None else argument])

    def _without_integers(self, source: Node) -> np.ndarray:
        tensor = operator.attrgetter(str(source.target))(self.part)
        return np.array(tensor.detach().cpu().numpy())


def as_real(module: nn.Module, integers: bool) -> tuple[nn.Module, dict[str, IntegerWeight]]:
    """Return a module without integers, or itself, and the quantization of its weights.

    Without `integers` activations are clamped to their ranges, but not rounded.
    """
    if not any(_calls(part, DEQUANTIZE + QUANTIZE) for part in module.modules()):
        return module, {}
    copied = copied_module(module)
    weights: dict[str, IntegerWeight] = {}
    for path, part in copied.named_modules():
        if isinstance(part, GraphModule):
            rewriter = _Rewriter(part, f"{path}." if path else "", integers, weights)
            try:
                rewriter.run()
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                check_own(error, f"it read {path or type(module).__name__}", "torch", "torchao")
                raise ImportModelError(
                    f"{path or type(module).__name__}: scales and zero points do not fit what they "
                    f"are of: {error}; quantize the module again"
                ) from error
    return copied, weights


def _calls(part: nn.Module, names: tuple[str, ...]) -> list[Node]:
    nodes = part.graph.nodes if isinstance(part, GraphModule) else ()
    return [node for node in nodes if str(node.target).startswith(names)]


def _as(known: _Range, real: np.ndarray) -> np.ndarray:
    """Return the integers to which a module quantizes a float weight."""
    return np.clip(known.quantization.rounded(real, known.dtype), known.low, known.high)


def _owner(part: nn.Module, target: str) -> tuple[nn.Module, str]:
    path, _, leaf = target.rpartition(".")
    return part.get_submodule(path), leaf


def _refused(node: Node, why: str) -> ImportModelError:
    return ImportModelError(f"{node.target} in {module_path(node) or node.name}: {why}")
