"""Branches, loops and variables of a TFLite file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.tensorflow.control import chosen_results, unrolled
from pockengine.frontends.tensorflow.ops import Known

if TYPE_CHECKING:
    from pockengine.frontends.tensorflow.lite.walk import OperatorWalker


@dataclass(frozen=True)
class Handle:
    """A variable of the file, by its name."""

    name: str


def _while(walker: "OperatorWalker", options: Any, values: Sequence[Known]) -> list[Known]:
    """Unroll a loop."""
    condition = partial(walker.run, options.CondSubgraphIndex())
    return unrolled(condition, partial(walker.run, options.BodySubgraphIndex()), values)


def _if(walker: "OperatorWalker", options: Any, values: Sequence[Known]) -> list[Known]:
    """Take a branch, or compute both where data decide."""
    choice, *arguments = values
    indices = options.ElseSubgraphIndex(), options.ThenSubgraphIndex()
    if isinstance(choice, np.ndarray):
        return walker.run(indices[bool(choice.item())], arguments)
    runs = [partial(walker.run, index) for index in indices]
    return chosen_results(walker.g, choice, runs, arguments=arguments, tensor=walker.tensor)


def _call_once(walker: "OperatorWalker", options: Any, values: Sequence[Known]) -> list[Known]:
    """Run the initializers of variables."""
    return walker.run(options.InitSubgraphIndex(), [])


def _handle(walker: "OperatorWalker", options: Any, values: Sequence[Known]) -> list[Known]:
    """Name a variable."""
    parts = options.Container() or b"", options.SharedName() or b""
    return [Handle("/".join(part.decode(errors="replace") for part in parts))]


def _read(walker: "OperatorWalker", options: Any, values: Sequence[Known]) -> list[Known]:
    """Return a variable's value."""
    (handle,) = values
    if handle.name not in walker.variables:
        raise Unsupported(f"nothing gives the variable {handle.name!r} a value")
    return [walker.variables[handle.name]]


def _assign(walker: "OperatorWalker", options: Any, values: Sequence[Known]) -> list[Known]:
    """Set a variable's initial value; one that changes is a state, which does not persist between
    steps."""
    handle, value = values
    if handle.name in walker.variables:
        raise Unsupported(
            f"it changes the variable {handle.name!r} from one call to the next; give the state to "
            "the model as an input, and return it"
        )
    walker.variables[handle.name] = value
    return []


CONTROL: dict[str, Callable[["OperatorWalker", Any, Sequence[Known]], list[Known]]] = {
    "ASSIGN_VARIABLE": _assign,
    "CALL_ONCE": _call_once,
    "IF": _if,
    "READ_VARIABLE": _read,
    "VAR_HANDLE": _handle,
    "WHILE": _while,
}
