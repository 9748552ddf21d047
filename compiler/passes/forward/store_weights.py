"""Store frozen weights in fewer bits, and decode them at each reader.

Frozen weights of linear layers, embeddings and experts become bf16, f16, or integers in blocks
(`ir/blocks.py`) before differentiation: passes, planner and gradients see params of another type
and decoding nodes. Adapters beside such weights train in f32, as in QLoRA (Dettmers et al.,
NeurIPS'23).
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from pockengine.compiler.ir.blocks import Blocks, scales_name
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Contents, Converted, Lazy
from pockengine.compiler.ir.graph import Graph, Node, Param, Value
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ir.scalars import DType, numbers_of
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.option_types import OneOf
from pockengine.compiler.sparse.dora import use_stored
from pockengine.errors import CompileError, GraphError

SMALLEST = 4096
"""Minimum number of elements of a weight to store in fewer bits."""

FLOATS = {"bf16": DType.BF16, "f16": DType.F16}
BITS = {"int8": 8, "int4": 4}


@dataclass(frozen=True)
class _Encoded(Contents):
    """The codes or the scales of a weight."""

    name: str
    weight: Contents
    blocks: Blocks
    scales: bool
    type: TensorType

    @property
    def known(self) -> bool:
        return self.weight.known

    def read(self) -> np.ndarray:
        try:
            encoded = self.weight.in_blocks(self.blocks) if isinstance(self.weight, Grid) else None
            return (encoded or self.blocks.encode(self.weight.read()))[self.scales]
        except GraphError as error:
            raise CompileError(f"{self.name} cannot be stored small: {error}") from error


@dataclass(frozen=True)
class _Rounded(Converted):
    """A weight in 16 bits."""

    name: str

    def read(self) -> np.ndarray:
        with np.errstate(over="ignore"):
            numbers = super().read()
        if not np.isfinite(numbers_of(numbers)).all():
            form = self.type.dtype.value
            raise CompileError(
                f"{self.name} cannot be stored small: a weight is not finite, or too large for "
                f"{form}" + ("; store the weights as bf16" if form == "f16" else "")
            )
        return numbers


@dataclass(frozen=True)
class _Stored:
    """A stored weight: one tensor of a smaller type, or codes with their scales."""

    codes: Value
    scales: Value | None = None
    blocks: Blocks | None = None

    def decoded(self, g: Builder) -> Value:
        """Decode the whole weight."""
        return self._numbers(g, self.codes, self.scales, 0)

    def contents(self, graph: Graph) -> Contents:
        """Return the decoded numbers."""
        codes, blocks = graph.params[self.codes.name].contents, self.blocks
        if blocks is None or self.scales is None:
            return Converted(codes, TensorType(F32, codes.type.shape))
        scales = graph.params[self.scales.name].contents
        type_ = TensorType(F32, blocks.shape(codes.type.shape))
        return Lazy(type_, lambda: blocks.decode(codes.read(), scales.read()), self.codes.name)

    def rows(self, g: Builder, index: Value) -> Value:
        """Decode selected rows."""
        codes = g.take(self.codes, index, axis=0)
        scales = None if self.scales is None else g.take(self.scales, index, axis=0)
        return self._numbers(g, codes, scales, len(index.shape) - 1)

    def _numbers(self, g: Builder, codes: Value, scales: Value | None, further: int) -> Value:
        if self.blocks is None or scales is None:
            return g.cast(codes, dtype=F32.value)
        axis = self.blocks.axis + further
        return g.decode_blocks(codes, scales, bits=self.blocks.bits, axis=axis)


@dataclass(frozen=True)
class StoreWeights(Pass):
    """Store frozen weights in fewer bits, and decode them where they are read.

    `written` names the params that change. A weight whose axes do not divide into blocks stays f32.
    CompileError if there is no weight to store.
    """

    dtype: Annotated[str, OneOf((*FLOATS, *BITS))]
    written: Set[str] = frozenset()

    def run(self, graph: Graph) -> None:
        users = graph.users()
        frozen = [param for name, param in graph.params.items() if name not in self.written]
        weights = [param for param in frozen if _is_weight(param, users.get(param.value, []))]
        forms = {param.value: _form(param, users[param.value], self.dtype) for param in weights}
        contents = {param.value: param.contents for param in weights}
        stored = {
            param.value: _store(graph, param, form)
            for param in weights
            if (form := forms[param.value]) is not None
        }
        if not stored:
            raise CompileError(
                f"frozen weights cannot be stored as {self.dtype}: no weight "
                f"of a linear layer or embedding with {SMALLEST} elements or more is frozen"
            )
        use_stored(graph, {contents[value]: form.contents(graph) for value, form in stored.items()})
        rewrite(graph, lambda g, node: _decoded(g, node, stored))


def weights_of(forward: Graph, names: Set[str]) -> Set[str]:
    """Return which of these params are large f32 weights of linear layers and embeddings."""
    users = forward.users()
    return {
        name
        for name in names
        if _is_weight(forward.params[name], users.get(forward.params[name].value, []))
    }


def _is_weight(param: Param, readers: Sequence[Node]) -> bool:
    """Whether its only users are linear layers and look-ups of rows or experts."""
    value = param.value
    large = value.dtype is F32 and value.type.size >= SMALLEST and param.quantization is None
    return (
        large and bool(readers) and all(_is_layer(n, value) or _is_rows(n, value) for n in readers)
    )


def _is_layer(node: Node, weight: Value) -> bool:
    return node.op == "matmul" and node.operands[1] is weight and node.operands[0] is not weight


def _is_rows(node: Node, weight: Value) -> bool:
    """Whether it gathers rows of an embedding, or the experts of each token."""
    return node.op == "take" and node.attrs["axis"] == 0 and len(weight.shape) >= 2


def _form(param: Param, readers: Sequence[Node], storage: str) -> DType | Blocks | None:
    """Return the type or block format of a weight; None if neither axis divides into blocks.

    Blocks lie along the axis of a file's scales, or else along the axis that a product sums over,
    as in GGUF, if possible.
    """
    if storage in FLOATS:
        return FLOATS[storage]
    rank = len(param.value.shape)
    summed, rows = rank - 2, any(_is_rows(node, param.value) for node in readers)
    if rows or any(node.attrs["transpose_b"] for node in readers):
        summed = rank - 1
    axes = [param.contents.axis] if isinstance(param.contents, Grid) else []
    axes.append(summed)
    if not rows or rank > 2:
        axes.append(rank - 1 if summed == rank - 2 else rank - 2)
    axes = [axis for axis in axes if axis or not rows]
    choices = (Blocks(BITS[storage], axis) for axis in axes)
    return next((blocks for blocks in choices if blocks.fits(param.value.shape)), None)


def _store(graph: Graph, param: Param, form: DType | Blocks) -> _Stored:
    """Replace a param by its stored form, under its name."""
    name, weights = param.name, param.contents
    if isinstance(form, DType):
        type_ = TensorType(form, param.value.shape)
        return _Stored(_replaced(graph, param, _Rounded(weights, type_, name)))
    codes, scales = form.types(param.value.shape)
    made = _replaced(graph, param, _Encoded(name, weights, form, scales=False, type=codes), form)
    contents = _Encoded(name, weights, form, scales=True, type=scales)
    value = Builder(graph).param(scales_name(name), contents, trainable=False)
    graph.params[scales_name(name)].permutation = param.permutation
    return _Stored(made, value, form)


def _replaced(
    graph: Graph, param: Param, contents: Contents, blocks: Blocks | None = None
) -> Value:
    value = Value(param.name, contents.type)
    graph.params[param.name] = replace(param, value=value, contents=contents, blocks=blocks)
    return value


def _decoded(g: Builder, node: Node, stored: Mapping[Value, _Stored]) -> Sequence[Value] | None:
    """Decode a stored weight for a node that reads it."""
    if node.op == "take" and node.operands[0] in stored:
        return (stored[node.operands[0]].rows(g, node.operands[1]),)
    if node.op == "matmul" and node.operands[1] in stored:
        operands = (node.operands[0], stored[node.operands[1]].decoded(g))
        return g.repeat(node, operands).results
    return None
