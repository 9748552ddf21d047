"""Decide which float constants of a model train: by what the file says, else by who reads them.

Exporters of PyTorch write `InputSpec.kind` of what they took from the model. Where that is missing,
weights of layers, biases, and scales and shifts of norms train. Statistics that an input is
normalized by, initial states of zeros, positional tables of sines, and the ones and zeros that an
exporter puts around a norm do not. A `Constant` operator trains in the role of a weight, unless
the exporter is one that keeps weights as initializers.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from pockengine.compiler.ir import Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.control import bodies, nested
from pockengine.frontends.onnx.emulated_types import FLOAT_CODES

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
PARAMETER = "PARAMETER"
GENERATED = ("onnx::", "val_", "/")
"""How names begin that PyTorch's exporters make up."""
LITERALS = ("pytorch",)
"""Producers that write weights as initializers, and literals as `Constant` operators."""
MOVES = ("Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
NORMS = (
    "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization",
    "RMSNormalization", "SkipLayerNormalization",
)  # fmt: skip
LAYERS: Mapping[str, tuple[int, ...]] = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Einsum": (0, 1),
    "GRU": (1, 2, 3),
    "Gather": (0,),
    "GatherND": (0,),
    "Gemm": (0, 1, 2),
    "LSTM": (1, 2, 3, 7),
    "MatMul": (0, 1),
    "RNN": (1, 2, 3),
}
"""Operators with the inputs that may be weights."""
WEIGHTS: Mapping[str, tuple[int, ...]] = {
    **LAYERS,
    **dict.fromkeys(NORMS, (1, 2)),
    "PRelu": (1,),
}
STATES: Mapping[str, tuple[int, ...]] = {"GRU": (5,), "LSTM": (5, 6), "RNN": (5,)}
ARITHMETIC = ("Add", "Div", "Mul", "Sub")
MOST_NAMED = 5


@dataclass(frozen=True)
class ConstantReader:
    """An operator that reads a constant, maybe moved, at one of its inputs."""

    node: NodeProto
    index: int

    @property
    def others(self) -> list[str]:
        """Names of the other inputs."""
        return [name for i, name in enumerate(self.node.input) if i != self.index and name]


class Roles:
    """Facts about a model's constants, and the decisions so far."""

    def __init__(
        self, model: ModelProto, nodes: Sequence[NodeProto], chosen: Mapping[str, bool]
    ) -> None:
        """Look at who reads what; `chosen` says of names whether they train, and wins."""
        self.chosen = chosen
        self.kinds = _kinds(model.graph)
        self.literals = model.producer_name in LITERALS or bool(self.kinds)
        self.frozen: dict[str, list[str]] = {}
        self.added: list[str] = []
        inner = list(nested(nodes))
        self._names = _float_names(model.graph, inner)
        self._readers = _readers(inner)
        self._next: dict[str, list[str]] = {}
        for node in inner:
            for name in node.input:
                self._next.setdefault(name, []).append(node.op_type)
        self._bare = _bare(model.graph, inner)
        self._counts = _counts(model.graph, inner)
        self._rows = {n.output[0] for n in inner if n.op_type == "Gather" and n.output}

    def trains(self, name: str, data: np.ndarray) -> bool:
        """Whether an initializer trains; notes why not."""
        if name in self.chosen:
            return self.chosen[name]
        kind = self.kinds.get(name)
        reason = "" if kind == PARAMETER else self._reason(name, data)
        if kind not in (None, PARAMETER):
            reason = f"the file says {kind}"
        if reason:
            self.frozen.setdefault(reason, []).append(name)
        return not reason

    def trains_as_constant(self, name: str, data: np.ndarray) -> bool:
        """Whether the value of a `Constant` operator is a weight."""
        if name in self.chosen:
            return self.chosen[name]
        if self.literals or data.size < 2 or not self._is_weight(name, data):
            return False
        trains = not self._reason(name, data)
        if trains:
            self.added.append(name)
        return trains

    def check(self) -> None:
        """Raise ImportModelError for a choice of what is no float tensor of the model."""
        for name in self.chosen:
            if name not in self._names:
                raise ImportModelError(
                    f"trainable= names {name!r}, which is no float tensor of the model; it has "
                    f"{listed(sorted(self._names)) or 'none'}"
                )

    def tell(self, graph: Graph) -> None:
        """Summarise the decisions in one line, unless simply all weights train."""
        read = {why: [n for n in self.frozen[why] if n in graph.params] for why in self.frozen}
        parts = [f"{listed(names)} do not ({why})" for why, names in read.items() if names]
        added = [name for name in self.added if name in graph.params]
        if added:
            parts.insert(0, f"{listed(added)} are `Constant` operators")
        if parts:
            count = sum(param.trainable for param in graph.params.values())
            warnings.warn(
                f"{graph.name}: {count} weights train; {'; '.join(parts)}. To change it, say "
                "trainable={name: True or False}, or --trainable or --frozen NAME",
                stacklevel=5,
            )

    def _reason(self, name: str, data: np.ndarray) -> str:
        """Return why a constant is no parameter by its role; nothing if it is one."""
        if name not in self.kinds and name.endswith("buffer"):
            return "buffers by their names"
        if self._is_zero_state(name, data):
            return "initial states of zeros"
        if self._is_stand_in(name, data):
            return "an exporter's ones and zeros around a norm"
        if self._is_read_with(name, ("Mul",), self._rows) and is_ones_of_rows(data):
            return "an exporter's ones for the rows of an embedding"
        if self._is_read_with(name, ARITHMETIC, self._bare) and per_channel(data):
            return "statistics that an input is normalized by"
        if self._is_read_with(name, (*ARITHMETIC, "Einsum", "MatMul"), self._counts):
            return "factors of positions"
        if is_table(data) or are_frequencies(data):
            return "tables of sines, or frequencies of some"
        if self.kinds and not self._is_weight(name, data):
            return "no parameters of the exported module by their names"
        return ""

    def _is_zero_state(self, name: str, data: np.ndarray) -> bool:
        places = [r.index in STATES.get(r.node.op_type, ()) for r in self._readers.get(name, ())]
        return bool(places) and all(places) and not data.any()

    def _is_stand_in(self, name: str, data: np.ndarray) -> bool:
        """An exporter writes norms without weights, and those of groups, by ones and zeros."""
        readers = self._readers.get(name, ())
        norms = [r.node for r in readers if r.node.op_type == "InstanceNormalization"]
        if not norms or len(norms) < len(readers) or not np.isin(data, (0, 1)).all():
            return False
        after = {op for node in norms for op in self._next.get(node.output[0], ())}
        generated = name.startswith(GENERATED)
        return bool(np.all(data == data.flat[0])) and (generated or after == {"Reshape"})

    def _is_read_with(self, name: str, ops: Sequence[str], others: set[str]) -> bool:
        readers = self._readers.get(name, ())
        return bool(readers) and all(
            r.node.op_type in ops and r.others and others.issuperset(r.others) for r in readers
        )

    def _is_weight(self, name: str, data: np.ndarray) -> bool:
        """Whether a constant is in a weight's place: no scale of one number, no matrix of one."""
        several = data.size > 1
        varied = several and not np.all(data == data.flat[0])
        return any(
            varied or not several or r.index > 1
            if r.node.op_type in LAYERS and r.index in LAYERS[r.node.op_type]
            else r.index in WEIGHTS.get(r.node.op_type, ())
            or (r.node.op_type in ARITHMETIC and several and per_channel(data))
            for r in self._readers.get(name, ())
        )


def is_ones_of_rows(data: np.ndarray) -> bool:
    """Whether each row is scaled by 1, as PyTorch writes a bag of embeddings without weights."""
    return data.ndim > 1 and data.shape[-1] == 1 and bool((data == 1).all())


def is_table(data: np.ndarray) -> bool:
    """Whether rows are sines and cosines of one angle, or of multiples of one for each column."""
    if data.ndim < 2 or min(data.shape[-2:]) < 2 or np.abs(data).max() > 1 + 1e-5:
        return False
    rows = data.reshape(-1, data.shape[-1]).astype(np.float64)
    return _are_pairs(np.square(rows)) or _are_multiples(rows)


def are_frequencies(data: np.ndarray) -> bool:
    """Whether these are the frequencies of rotary embeddings: 1, r, r r, ... below 1."""
    line = data.ravel().astype(np.float64)
    if line.size < 4 or line[0] != 1 or not per_channel(data) or (line <= 0).any():
        return False
    ratios = line[1:] / line[:-1]
    return bool(ratios[0] < 0.999 and np.ptp(ratios) < 1e-4 * ratios[0])


def _are_pairs(squares: np.ndarray) -> bool:
    """Side by side, or in halves."""
    half = squares.shape[1] // 2
    if squares.shape[1] < 4 or squares.shape[1] % 2:
        return False
    pairs = squares[:, 0::2] + squares[:, 1::2], squares[:, :half] + squares[:, half:]
    return any(bool((np.abs(sums - 1) < 1e-4).all()) for sums in pairs)


def _are_multiples(rows: np.ndarray) -> bool:
    """The cosines of 0, 1, 2, ... times an angle, or the sines: a table of rotary embeddings."""
    steps = np.arange(len(rows))[:, None]
    if len(rows) < 3 or not (rows[0] == rows[0, 0]).all() or rows[0, 0] not in (0, 1):
        return False
    made, back = (np.cos, np.arccos) if rows[0, 0] else (np.sin, np.arcsin)
    angles = back(np.clip(rows[1], -1, 1))
    return bool((np.abs(made(steps * angles) - rows) < 1e-3).all() and np.ptp(rows) > 1e-3)


def per_channel(data: np.ndarray) -> bool:
    """Whether at most one dimension is longer than one."""
    return sum(size > 1 for size in data.shape) < 2


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _kinds(graph: GraphProto) -> dict[str, str]:
    """Return what PyTorch's exporter says that constants were, by name."""
    values = (*graph.value_info, *graph.input, *graph.initializer)
    found = ((value.name, entry) for value in values for entry in value.metadata_props)
    kinds = {name: entry.value for name, entry in found if entry.key == KIND}
    return {name: kind for name, kind in kinds.items() if kind != "USER_INPUT"}


def _float_names(graph: GraphProto, nodes: Sequence[NodeProto]) -> set[str]:
    """Return the names of constants that may be weights."""
    tensors = [(tensor.name, tensor) for tensor in graph.initializer]
    for node in nodes:
        tensors += [(tensor.name, tensor) for body in bodies(node) for tensor in body.initializer]
        if node.op_type == "Constant":
            tensors += [(node.output[0], attribute.t) for attribute in node.attribute]
    return {name for name, t in tensors if t.data_type in FLOAT_CODES and t.dims}


def _readers(nodes: Sequence[NodeProto]) -> dict[str, list[ConstantReader]]:
    """Return who reads each name, also through what only moves its elements."""
    origin: dict[str, str] = {}
    readers: dict[str, list[ConstantReader]] = {}
    for node in nodes:
        if node.op_type in MOVES and node.input and node.output:
            origin[node.output[0]] = origin.get(node.input[0], node.input[0])
            continue
        for index, name in enumerate(node.input):
            readers.setdefault(origin.get(name, name), []).append(ConstantReader(node, index))
    return readers


def _bare(graph: GraphProto, nodes: Sequence[NodeProto]) -> set[str]:
    """Return what arithmetic with constants makes of the inputs before the first layer."""
    if not any(node.op_type in LAYERS and "Gather" not in node.op_type for node in nodes):
        return set()  # arithmetic is all there is
    constants = _constants(graph, nodes)
    inputs = {value.name for value in graph.input} - constants
    return _made(nodes, inputs, constants, (*MOVES, *ARITHMETIC))


def _counts(graph: GraphProto, nodes: Sequence[NodeProto]) -> set[str]:
    """Return positions: what is made of whole numbers and of shapes alone."""
    whole = (TensorProto.INT32, TensorProto.INT64)
    names = {v.name for v in graph.input if v.type.tensor_type.elem_type in whole}
    names |= {tensor.name for tensor in graph.initializer if tensor.data_type in whole}
    names |= {name for n in nodes if n.op_type in ("Range", "Shape") for name in n.output}
    return _made(nodes, names, set(), (*MOVES, *ARITHMETIC, "Concat", "Slice"))


def _constants(graph: GraphProto, nodes: Sequence[NodeProto]) -> set[str]:
    names = {tensor.name for tensor in graph.initializer}
    return names.union(*(node.output for node in nodes if node.op_type == "Constant"))


def _made(
    nodes: Sequence[NodeProto], names: set[str], beside: set[str], ops: Sequence[str]
) -> set[str]:
    """Return names and what these operators make of them, maybe with those beside."""
    for node in nodes:
        given = {name for name in node.input if name}
        if node.op_type in ops and given & names and given <= names | beside:
            names.update(node.output)
    return names
