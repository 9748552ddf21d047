"""Functions inside of the graph: calls are inlined, loops unrolled, branches chosen.

That is possible where the condition is known at compile time; what a tensor decides at run time is
an error that says so.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.tensorflow.ops import Known

MAX_STEPS = 4096
"""Steps of one loop: each becomes code of its own."""
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
LOOPS = ("While", "StatelessWhile")
CONTROL = (*CALLS, *BRANCHES, *LOOPS)

Run = Callable[[Any, Sequence[Known], str], list[Known]]
"""Build a function's body for these arguments, at this place, and return its results."""


class Library:
    """The functions that a graph's operators call, by name."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        """Take TensorFlow's FunctionDefs."""
        self._definitions = definitions
        self._graphs: dict[str, Any] = {}

    def graph(self, function: Any) -> Any:
        """Return a function's body as a graph, given the attribute that names it."""
        name = function.name
        if name not in self._graphs:
            if name not in self._definitions:
                raise Unsupported(f"the function {name!r}, which the model does not hold")
            self._graphs[name] = function_def_to_graph(self._definitions[name])
        return self._graphs[name]

    def has_writes(self) -> bool:
        """Return whether any function writes a variable."""
        return any(
            node.op.startswith("Assign")
            for definition in self._definitions.values()
            for node in definition.node_def
        )


def run_control(
    op: Any, values: Sequence[Known], library: Library, run: Run, place: str
) -> list[Known]:
    """Build a call, a branch or a loop that stands in the function at this place.

    The operators inside of branches and loops carry the whole path in their names, those of called
    functions do not.
    """
    if op.type in CALLS:
        return run(library.graph(op.get_attr("f")), values, f"{place}/{op.name}".lstrip("/"))
    if op.type in BRANCHES:
        return run(*_branch(op, values, library), place)
    return _loop(op, values, library, run, place)


def _branch(op: Any, values: Sequence[Known], library: Library) -> tuple[Any, list[Known]]:
    """Return the body of the branch that is taken, and its arguments."""
    choice, *arguments = values
    if not isinstance(choice, np.ndarray):
        raise Unsupported(
            "an `if` that a tensor decides; a compiled model does the same steps for any data: use "
            "tf.where, or move the decision out of the model"
        )
    if op.type in ("If", "StatelessIf"):
        branch = op.get_attr("then_branch" if choice.item() else "else_branch")
    else:
        branches = op.get_attr("branches")
        index = int(choice)
        branch = branches[index if 0 <= index < len(branches) else -1]
    return library.graph(branch), arguments


def _loop(op: Any, values: Sequence[Known], library: Library, run: Run, place: str) -> list[Known]:
    condition, body = (library.graph(op.get_attr(name)) for name in ("cond", "body"))
    state = list(values)
    for _ in range(MAX_STEPS):
        (going,) = run(condition, state, place)
        if not isinstance(going, np.ndarray):
            raise Unsupported(
                "a loop that a tensor ends; unroll it, or give it a number of steps that is known "
                "when the model is traced"
            )
        if not going.item():
            return state
        state = run(body, state, place)
    raise Unsupported(f"a loop of more than {MAX_STEPS} steps, each of which would be code")
