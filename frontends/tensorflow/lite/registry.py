"""Rules of TFLite's operators, by their names in the schema.

A rule is called with the context, the operator's options and its inputs (None if one is missing, or
is a state that starts at zero). The positions in `static` arrive as NumPy arrays, those in `either`
so where they are known. `wishes` says in which order of dimensions our ops want an input that the
file holds, `bias` which input is one.
"""

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pockengine.compiler.ir import Builder, Shape
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Layout, Tensor
from pockengine.frontends.tensorflow.ops import Known, TfContext
from pockengine.frontends.walker import constant

Rule = Callable[..., Known]


@dataclass(frozen=True)
class LiteContext(TfContext):
    """A rule's further context: the factor of the batch's growth, and the file's declarations.

    `declared` are the inputs' shapes, `results` and `kinds` the results' shapes and types.
    """

    rows: int = 1
    declared: tuple[Shape, ...] = ()
    results: tuple[Shape, ...] = ()
    kinds: tuple[str, ...] = ()

    def fixed(self, found: Sequence[int]) -> Unsupported:
        """Return the error for using a file of a fixed batch with a larger one."""
        return Unsupported(
            f"it gives {list(found)} by a batch {self.rows} times that which the file was "
            "converted for; give example inputs of the file's own batch, or convert the model with "
            "an open one"
        )

    def grown(self, place: int, sizes: Sequence[int]) -> list[int]:
        """Return the file's sizes, with the batch size replaced by the current one."""
        found = list(sizes)
        if self.rows != 1 and found and found[0] == self.declared[place][0]:
            found[0] *= self.rows
        return found


@dataclass(frozen=True)
class LiteRule:
    """A rule with the facts that the importer needs before calling it."""

    apply: Rule
    static: tuple[int, ...] = ()
    wishes: Mapping[int, Layout] = field(default_factory=dict)
    either: Container[int] = ()
    bias: int | None = None

    def check(self, values: Sequence[Known]) -> None:
        """Raise Unsupported if an operator has other inputs than the rule takes."""
        check_operands(self.operands, values)

    @cached_property
    def operands(self) -> list[inspect.Parameter]:
        """The arguments of the rule after context and options."""
        return operands_of(self.apply)[1:]

    def as_operand(self, place: int, value: Known, tensor: Callable[[Known], Tensor]) -> Known:
        """Return an input in the rule's form."""
        if value is None:
            return None
        if place in self.static and not isinstance(value, np.ndarray):
            raise Unsupported("a shape, axis or place that data decide; it must be known")
        known = place in self.static or (place in self.either and isinstance(value, np.ndarray))
        return value if known else tensor(value)


def operands_of(rule: Rule) -> list[inspect.Parameter]:
    """Return what a rule takes by place after its context; the last may stand for many."""
    places = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [p for p in inspect.signature(rule).parameters.values() if p.kind in places][1:]


def check_operands(operands: Sequence[inspect.Parameter], values: Sequence[Known]) -> None:
    """Raise Unsupported if there are more or fewer values, or one is missing."""
    many = bool(operands) and operands[-1].kind is inspect.Parameter.VAR_POSITIONAL
    needed = len([p for p in operands if p.default is p.empty]) - many
    if not needed <= len(values) <= (len(values) if many else len(operands)):
        raise Unsupported(f"{len(values)} inputs, where the operator has {needed}")
    for place, value in enumerate(values):
        kind = operands[min(place, len(operands) - 1)].annotation
        if value is None and kind is Tensor:
            raise Unsupported(f"its input {place} is left out")


LITE_RULES: dict[str, LiteRule] = {}


def lite_op(
    name: str,
    static: Sequence[int] = (),
    wishes: Mapping[int, Layout] | None = None,
    either: Container[int] = (),
    bias: int | None = None,
) -> Callable[[Rule], Rule]:
    """Register a rule for an operator."""

    def register(rule: Rule) -> Rule:
        LITE_RULES[name] = LiteRule(rule, tuple(static), wishes or {}, either=either, bias=bias)
        return rule

    return register


def in_graph(g: Builder, value: Known) -> Tensor:
    """Return a tensor unchanged, and a compile-time value as a constant of the graph."""
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, np.ndarray):
        raise Unsupported("a variable, where numbers are read")
    return constant(g, value)
