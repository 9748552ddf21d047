"""Parts of a TFLite file as plain data, which `flat.py` serializes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pockengine.compiler.ir.types import Shape

Attribute = int | float | bool | str
"""Strings are enum names of the schema."""


@dataclass(frozen=True)
class LiteTensor:
    """A tensor of a subgraph; `number` is its index there, `kind` a name of TensorType."""

    number: int
    name: str
    kind: str
    shape: Shape


@dataclass(frozen=True)
class LiteOperator:
    """An operator by its name in BuiltinOperator; tensors by their numbers.

    `options` is the table of its attributes, by their names in the schema.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: str
    attrs: Mapping[str, Attribute]


@dataclass
class LiteSubgraph:
    """A list of operators in execution order. `data` are the contents of constants."""

    name: str
    tensors: list[LiteTensor] = field(default_factory=list)
    operators: list[LiteOperator] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    data: dict[int, np.ndarray] = field(default_factory=dict)

    def tensor(self, name: str, kind: str, shape: Shape) -> LiteTensor:
        """Append a tensor."""
        self.tensors.append(LiteTensor(len(self.tensors), name, kind, shape))
        return self.tensors[-1]


@dataclass(frozen=True)
class LiteSignature:
    """A signature: a subgraph's name for callers, with its inputs and outputs."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
