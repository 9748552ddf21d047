"""Control flow: select branches at compile time, and unroll loops.

The condition or the number of steps must be known at compile time; run-time decisions are refused
with an explanation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, plain, reshape

MOST_NODES = 20_000
"""Maximum operators of an unrolled loop."""

Known = Tensor | np.ndarray
Run = Callable[[GraphProto, Sequence[Known]], list[Known]]
"""Builds a body for these inputs, in place, and returns its outputs."""


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Return the subgraphs of an operator."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g


def nested(nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
    """Yield operators, including those of nested graphs."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from nested(body.node)


def build_if(g: Builder, node: NodeProto, values: Sequence[Known | None], run: Run) -> list[Known]:
    """Build the branch selected by a constant condition."""
    branches = {attribute.name: attribute.g for attribute in node.attribute}
    if not isinstance(values[0], np.ndarray):
        raise Unsupported(
            "a branch that a tensor decides; a compiled model does the same steps for any data: "
            "use Where, or give the condition by constants={...}"
        )
    return run(branches["then_branch" if values[0].item() else "else_branch"], [])


def build_loop(
    g: Builder, node: NodeProto, values: Sequence[Known | None], run: Run
) -> list[Known]:
    """Unroll a loop whose number of steps, or whose condition in every step, is known."""
    (body,) = bodies(node)
    most, going, *state = values
    if any(isinstance(value, Tensor) for value in (most, going)) or any(
        value is None for value in state
    ):
        raise Unsupported(
            "a loop that a tensor ends; give it a number of steps that is known when the model is "
            "exported"
        )
    count = len(state)
    carried: list[Known] = [value for value in state if value is not None]
    stacks: list[list[Known]] = [[] for _ in body.output[1 + count :]]
    step = 0
    while _goes_on(going) and (most is None or step < int(np.asarray(most).item())):
        _check_length(step + 1, body)
        condition = np.asarray(True) if going is None else going
        going, *results = run(body, [np.asarray(step, np.int64), condition, *carried])
        carried = results[:count]
        for stack, result in zip(stacks, results[count:], strict=True):
            stack.append(result)
        step += 1
    return [*carried, *(stacked(g, stack, 0) for stack in stacks)]


def _goes_on(condition: Known | None) -> bool:
    if isinstance(condition, Tensor):
        raise Unsupported("a loop that a tensor ends, computed in its own body; count its steps")
    return condition is None or bool(condition.item())


def _check_length(steps: int, body: GraphProto) -> None:
    if steps * max(len(body.node), 1) > MOST_NODES:
        raise Unsupported(
            f"a loop of {steps} steps or more with {len(body.node)} operators each, which is too "
            f"long to unroll: {MOST_NODES} operators are the most"
        )


def build_scan(
    g: Builder, node: NodeProto, values: Sequence[Known | None], run: Run
) -> list[Known]:
    """Unroll a scan over a dimension of its inputs, whose size is known."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    (body,) = bodies(node)
    inputs = attributes["num_scan_inputs"].i
    fixed = len(values) - inputs
    outputs = len(body.output) - fixed
    carried: list[Known] = [value for value in values[:fixed] if value is not None]
    scanned = [emit_tensor(g, value) for value in values[fixed:] if value is not None]
    axes = _list(attributes, "scan_input_axes", inputs)
    backwards = _list(attributes, "scan_input_directions", inputs)
    lengths = {x.shape[axis] for x, axis in zip(scanned, axes, strict=True)}
    if len(lengths) != 1 or len(carried) != fixed:
        raise Unsupported(f"a scan over dimensions of {sorted(lengths)}")
    (length,) = lengths
    _check_length(length, body)
    stacks: list[list[Known]] = [[] for _ in range(outputs)]
    for step in range(length):
        rows = [
            _row(g, x, axis, length - 1 - step if back else step)
            for x, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        results = run(body, [*carried, *rows])
        carried = results[:fixed]
        for stack, result in zip(stacks, results[fixed:], strict=True):
            stack.append(result)
    places = _list(attributes, "scan_output_axes", outputs)
    turned = _list(attributes, "scan_output_directions", outputs)
    whole = [
        stacked(g, stack[::-1] if back else stack, axis)
        for stack, axis, back in zip(stacks, places, turned, strict=True)
    ]
    return [*carried, *whole]


CONTROL: Mapping[str, Callable[..., list[Known]]] = {
    "If": build_if,
    "Loop": build_loop,
    "Scan": build_scan,
}
"""Operators with subgraphs."""


def _list(attributes: Mapping[str, AttributeProto], name: str, count: int) -> list[int]:
    return [int(n) for n in attributes[name].ints] if name in attributes else [0] * count


def emit_tensor(g: Builder, value: Known) -> Tensor:
    """Return a constant as a tensor."""
    if isinstance(value, Tensor):
        return value
    return plain(g.constant(np.array(value)))


def _row(g: Builder, x: Tensor, axis: int, at: int) -> Tensor:
    return emit.squeeze(g, emit.slice_dim(g, x, axis, start=at, stop=at + 1), [axis])


def stacked(g: Builder, parts: Sequence[Known], axis: int) -> Known:
    """Stack the results of all steps along a new dimension."""
    if not parts:
        raise Unsupported("a loop of no steps whose outputs would be empty")
    known = [part for part in parts if isinstance(part, np.ndarray)]
    if len(known) == len(parts):
        return np.stack(known, axis)
    rows: list[Tensor] = []
    for part in parts:
        x = emit_tensor(g, part)
        dim = axis % (x.rank + 1)
        rows.append(reshape(g, x, (*x.shape[:dim], 1, *x.shape[dim:])))
    return emit.concat(g, rows, axis)
