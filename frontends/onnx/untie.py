"""Separate weights that an exporter stored once because they were equal when it ran.

Fresh biases are all zeros and scales of norms all ones, so exporters for inference keep one of them
for all. Only weights of one repeated number are taken apart, and only where the file shows that
they were several: by a name of its own behind Identity (PyTorch's older exporter), by the module
that an operator came from (its newer one), by the weights beside them, which differ, or by one
being a running statistic. Remaining ties are reported by `rewrites.py`.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from pockengine.frontends.onnx.emulated_types import FLOAT_CODES
from pockengine.frontends.onnx.file import array_of

SCOPES = "pkg.torch.onnx.name_scopes"
"""Where PyTorch's exporter writes the modules around an operator, outermost first, and its node."""
GENERATED = "onnx::"
"""Prefixes of names that PyTorch's older exporter generates."""
NORM = {1: "weight", 2: "bias"}
LEAVES: Mapping[str, Mapping[int, str]] = {
    "BatchNormalization": {**NORM, 3: "running_mean", 4: "running_var"},
    "Conv": NORM,
    "ConvTranspose": NORM,
    "Gemm": NORM,
    "GroupNormalization": NORM,
    "InstanceNormalization": NORM,
    "LayerNormalization": NORM,
    "PRelu": {1: "weight"},
    "RMSNormalization": {1: "weight"},
}
"""Names of operators' inputs in modules."""
LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")
STATES = (3, 4)
"""The inputs of batch norm that are running statistics."""


@dataclass(frozen=True)
class _Slot:
    """One input that reads a weight, by the weight's own name or by an alias of it."""

    node: NodeProto
    index: int

    @property
    def name(self) -> str:
        return self.node.input[self.index]


def untie(model: ModelProto, folder: Path | None) -> ModelProto:
    """Return the model with equal weights apart that plainly were several; a copy if there are."""
    if not _names(model.graph, folder):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    named = _names(copy.graph, folder)
    tensors = {tensor.name: tensor for tensor in copy.graph.initializer}
    for name, (base, slots) in named.items():
        own = copy.graph.initializer.add()
        own.CopyFrom(tensors[base])
        own.name = name
        for slot in slots:
            slot.node.input[slot.index] = name
    nodes = [n for n in copy.graph.node if not named.keys() & set(n.output)]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def _names(graph: GraphProto, folder: Path | None) -> dict[str, tuple[str, list[_Slot]]]:
    """Return the names that weights get, with the weight that each was, and who reads it."""
    tensors = {t.name: t for t in graph.initializer if _may_train(t)}
    aliases = _aliases(graph, tensors)
    taken = {tensor.name for tensor in graph.initializer}.union(
        *(set(node.output) - aliases.keys() for node in graph.node),
        (value.name for value in graph.input),
    )
    origin = {**{name: name for name in tensors}, **aliases}
    makers = {name: node for node in graph.node for name in node.output}
    groups: dict[str, dict[str, list[_Slot]]] = {}
    for node in graph.node:
        for index, name in enumerate(node.input if not aliases.keys() & set(node.output) else ()):
            if name in origin:
                slot = _Slot(node, index)
                owner = _owner(slot, origin, makers)
                groups.setdefault(origin[name], {}).setdefault(owner, []).append(slot)
    found: dict[str, tuple[str, list[_Slot]]] = {}
    for base, owners in groups.items():
        if len(owners) > 1 and _one_number(tensors[base], folder):
            owners.pop(base if base in owners else next(iter(owners)))
            found |= {name: (base, slots) for name, slots in owners.items() if name not in taken}
    return found


def _may_train(tensor: TensorProto) -> bool:
    return tensor.data_type in FLOAT_CODES and len(tensor.dims) > 0


def _aliases(graph: GraphProto, tensors: Iterable[str]) -> dict[str, str]:
    """Return the aliases of weights by Identity, with the weight of each."""
    outputs = {value.name for value in graph.output}
    known = set(tensors)
    aliases: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "Identity" and node.output[0] not in outputs:
            base = aliases.get(node.input[0], node.input[0])
            if base in known:
                aliases[node.output[0]] = base
    return aliases


def _owner(slot: _Slot, origin: Mapping[str, str], makers: Mapping[str, NodeProto]) -> str:
    """Return the name of the weight that this input most likely was; the shared one in doubt."""
    base = origin[slot.name]
    if slot.name != base and not slot.name.startswith(GENERATED):
        return slot.name
    module = _module(slot.node)
    leaf = LEAVES.get(slot.node.op_type, {}).get(slot.index)
    if module:
        return f"{module}.{leaf or base.rpartition('.')[2]}"
    beside = _beside(slot, makers)
    if beside not in origin:
        return base
    return f"{origin[beside].removesuffix('.weight')}.{leaf or 'bias'}"


def _module(node: NodeProto) -> str:
    """Return the module of an operator recorded by PyTorch's exporter, or nothing."""
    return last_scope(node, SCOPES).partition("@")[0]


def last_scope(node: NodeProto, key: str) -> str:
    """Return the innermost module of a list that PyTorch's exporter wrote; nothing without one."""
    for entry in node.metadata_props:
        if entry.key == key:
            try:
                return str(ast.literal_eval(entry.value)[-2])
            except (IndexError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
                return ""
    return ""


def _beside(slot: _Slot, makers: Mapping[str, NodeProto]) -> str:
    """Return the weight that a bias or a running statistic belongs to, or nothing."""
    node = slot.node
    if node.op_type == "BatchNormalization" and slot.index in STATES:
        return node.input[1]
    if node.op_type in LINEAR and slot.index == 2:
        return node.input[1]
    if node.op_type == "Add":
        product = makers.get(node.input[1 - slot.index])
        if product is not None and product.op_type in LINEAR:
            return product.input[1]
    return ""


def _one_number(tensor: TensorProto, folder: Path | None) -> bool:
    """Whether a weight repeats a single number, as no trained weight does."""
    data = array_of(tensor, folder)
    return bool(data.size > 1 and np.all(data == data.flat[0]))
