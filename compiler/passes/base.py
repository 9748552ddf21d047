"""A pass: an in-place rewrite of a graph. Its fields are its options.

    @dataclass(frozen=True)
    class FoldConstants(Pass):
        written: Set[str] = frozenset()

        def run(self, graph: Graph) -> None: ...

The text form is the class name in snake case with the fields as options: `pass_text.py` prints the
value above as `fold_constants{written=frozenset(('w',))}` and reads it back.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, ClassVar, get_type_hints

from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.ir.verify import Inferred, verify
from pockengine.compiler.passes.option_types import accepts, described
from pockengine.errors import CompileError

Observer = Callable[[str, Graph], None]
"""Called after each pass with its name and the graph that it left."""


@dataclass(frozen=True)
class Option:
    """An option of a pass: its name, type and default (MISSING if required)."""

    name: str
    type: Any
    default: Any

    @property
    def required(self) -> bool:
        """Whether the option is required."""
        return self.default is MISSING

    @property
    def values(self) -> str:
        """The accepted values, in words."""
        return described(self.type)


@dataclass(frozen=True)
class Pass(ABC):
    """A rewrite of a graph; CompileError for an option with a wrong type or value."""

    name: ClassVar[str] = "pass"

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def __post_init__(self) -> None:
        for name, option in options_of(type(self)).items():
            value = getattr(self, name)
            if not accepts(option.type, value):
                raise CompileError(
                    f"pass {self.name}: option {name} takes {option.values}, not {value!r}"
                )

    @abstractmethod
    def run(self, graph: Graph) -> None:
        """Rewrite the graph in place."""


@cache
def options_of(kind: type[Pass]) -> Mapping[str, Option]:
    """Return the options of a pass by name, in the order of its fields."""
    types = get_type_hints(kind, include_extras=True)
    return {
        each.name: Option(
            each.name,
            types[each.name],
            each.default if each.default_factory is MISSING else each.default_factory(),
        )
        for each in fields(kind)
    }


def run_passes(
    passes: Sequence[Pass], graph: Graph, *, check: bool = False, observe: Observer | None = None
) -> None:
    """Run the passes in order; `check` verifies the graph after each.

    Repeated pass names reach the observer as `name_2`, and so on.
    """
    seen: dict[str, int] = {}
    inferred: Inferred = {}
    for each in passes:
        each.run(graph)
        if check:
            verify(graph, inferred)
        count = seen[each.name] = seen.get(each.name, 0) + 1
        if observe is not None:
            observe(each.name if count == 1 else f"{each.name}_{count}", graph)
