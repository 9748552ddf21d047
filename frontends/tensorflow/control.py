"""Nested functions: inline calls, unroll loops, select branches.

A loop's condition must be known at compile time. If a tensor selects a branch, all are computed and
one's results are selected.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from pockengine.compiler.ir import BOOL, I32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import branches
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.tensorflow.ops import Known

MAX_STEPS = 4096
"""Maximum steps of one loop: each becomes separate code."""
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
LOOPS = ("While", "StatelessWhile")
CONTROL = (*CALLS, *BRANCHES, *LOOPS)

Run = Callable[[Any, Sequence[Known], str], list[Known]]
"""Build a function's body for these arguments, at this place, and return its results."""


class Library:
    """The functions that a graph's operators call, by name."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        """Register TensorFlow's FunctionDefs."""
        self._definitions = definitions
        self._graphs: dict[str, Any] = {}

    def graph(self, function: Any) -> Any:
        """Return a function's body as a graph, given the attribute that names it."""
        name = function.name
        if name not in self._graphs:
            if name not in self._definitions:
                raise Unsupported(f"the function {name!r}, which the model does not hold")
            try:
                self._graphs[name] = function_def_to_graph(self._definitions[name])
            except RuntimeError as error:  # an operator that is a function's name
                raise Unsupported(
                    f"the function {name!r} calls another by its name, which TensorFlow does not "
                    "find; decorate no function inside of it by tf.custom_gradient or Defun"
                ) from error
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
    """Build a call, a branch or a loop at this place in the function.

    The operators inside branches and loops carry the whole path in their names, those of called
    functions do not.
    """
    if op.type in CALLS:
        return run(library.graph(op.get_attr("f")), values, f"{place}/{op.name}".lstrip("/"))
    if op.type in BRANCHES:
        return run(*_branch(op, values, library), place)
    return _loop(op, values, library, run=run, place=place)


def _branch(op: Any, values: Sequence[Known], library: Library) -> tuple[Any, list[Known]]:
    """Return the body of the branch that is taken, and its arguments."""
    choice, *arguments = values
    if not isinstance(choice, np.ndarray):
        raise Unsupported("a branch selected by something other than a tensor")
    bodies = _bodies(op)
    index = int(bool(choice)) if op.type in ("If", "StatelessIf") else int(choice)
    return library.graph(bodies[index if 0 <= index < len(bodies) else -1]), arguments


def _bodies(op: Any) -> list[Any]:
    """Return the branches by number; branch 0 of an `if` is the false one."""
    if op.type in ("If", "StatelessIf"):
        return [op.get_attr("else_branch"), op.get_attr("then_branch")]
    return list(op.get_attr("branches"))


def run_chosen(
    op: Any,
    values: Sequence[Known],
    library: Library,
    run: Callable[[Any, Sequence[Known]], list[Known]],
    tensor: Callable[[Known], Tensor],
    g: Builder,
) -> list[Known]:
    """Compute all branches and take the results of the one that a tensor names."""
    choice, *arguments = values
    bodies = [library.graph(body) for body in _bodies(op)]
    if any(inner.type.startswith("Assign") for body in bodies for inner in body.get_operations()):
        raise Unsupported(
            "a branch that data choose and that writes a variable; write it outside of the branch"
        )
    if op.type in ("If", "StatelessIf") and choice.dtype is not BOOL:
        choice = emit.arithmetic(g, "ne", choice, 0)
    runs = [partial(run, body) for body in bodies]
    return chosen_results(g, choice, runs, arguments=arguments, tensor=tensor)


def chosen_results(
    g: Builder,
    choice: Tensor,
    runs: Sequence[Callable[[Sequence[Known]], list[Known]]],
    arguments: Sequence[Known],
    tensor: Callable[[Known], Tensor],
) -> list[Known]:
    """Compute all branches; take the results of that which a truth or a number names."""
    index = emit.cast(g, choice, I32) if choice.dtype is BOOL else choice
    taken = branches.conditions(g, index, len(runs))
    found = []
    for here, run in zip(taken, runs, strict=True):
        found.append(
            run([branches.guarded(g, x, here) if isinstance(x, Tensor) else x for x in arguments])
        )
    results = zip(*found, strict=True)
    return [branches.chosen(g, taken, [tensor(x) for x in parts]) for parts in results]


def _loop(op: Any, values: Sequence[Known], library: Library, run: Run, place: str) -> list[Known]:
    condition, body = (library.graph(op.get_attr(name)) for name in ("cond", "body"))
    return unrolled(
        lambda state: run(condition, state, place), lambda state: run(body, state, place), values
    )


def unrolled(
    condition: Callable[[list[Known]], list[Known]],
    body: Callable[[list[Known]], list[Known]],
    values: Sequence[Known],
) -> list[Known]:
    """Run a loop whose condition is known before each step."""
    state = list(values)
    for _ in range(MAX_STEPS):
        (going,) = condition(state)
        if not isinstance(going, np.ndarray):
            raise Unsupported(
                "a loop that a tensor ends; unroll it, or give it a number of steps that is known "
                "when the model is traced"
            )
        if not going.item():
            return state
        state = body(state)
    raise Unsupported(f"a loop of more than {MAX_STEPS} steps, each of which would be code")
