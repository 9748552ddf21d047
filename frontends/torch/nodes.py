"""Properties of a node in an exported PyTorch program: arguments, writes, shapes, place."""

import linecache
import operator
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Node

from pockengine.compiler.ir import Shape
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.problems import EMPTY
from pockengine.frontends.torch.params import WITHIN

PRIM_NAMES = {"a": "x", "b": "other", "inp": "x", "pred": "condition"}
"""Arguments of prims whose names differ from ATen's for the same thing."""

DETACH = "aten.detach_.default"
"""It detaches a tensor in place, and does not change its elements."""

WHY = "selected"
"""Key in a selecting operator's metadata: the reason why not all rows can be computed."""

OF_PAIRS = {"aten.max.other": "maximum", "aten.min.other": "minimum"}
"""Elementwise overloads of names whose other overloads work along a dimension."""


def arguments_of(node: Node) -> dict[str, Any]:
    """Return the operator's arguments by their names in its schema, defaults filled in."""
    bound = {}
    for index, argument in enumerate(node.target._schema.arguments):
        if index < len(node.args):
            value = node.args[index]
        else:
            value = node.kwargs.get(argument.name, argument.default_value)
        bound["x" if argument.name in ("self", "input") else argument.name] = value
    if str(node.target).startswith("prims."):  # which name tensors alike, but not as ATen does
        return {PRIM_NAMES.get(name, name): value for name, value in bound.items()}
    return bound


def written_by(node: Node) -> list[Node]:
    """Return the names whose elements an in-place operator writes."""
    if not isinstance(node.target, torch._ops.OpOverload) or str(node.target) == DETACH:
        return []
    written = []
    for index, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            if isinstance(value, Node) and not _only_reshapes(node, value):
                written.append(value)
    return written


def check_order(node: Node) -> None:
    """Reject strides that traverse elements in another order than their tensor.

    Raises Unsupported.
    """
    if not str(node.target).startswith("aten.as_strided"):
        return
    source = node.args[0].meta["val"]
    if not source.is_contiguous() or source.storage_offset():
        raise Unsupported(
            "strides over a view of other memory; call .contiguous() on the tensor before"
        )


def _only_reshapes(node: Node, written: Node) -> bool:
    """Return whether an operator such as `unsqueeze_` changes how a tensor looks at its memory."""
    values = node.meta.get("val"), written.meta.get("val")
    return all(isinstance(value, torch.Tensor) for value in values) and (
        values[0].shape != values[1].shape or values[0].stride() != values[1].stride()
    )


def name_of(node: Node) -> str:
    """Return the name of an operator; that of its in-place form is the same."""
    if node.target is operator.getitem:
        return "getitem"
    if str(node.target) in OF_PAIRS:
        return OF_PAIRS[str(node.target)]
    packet = getattr(node.target, "overloadpacket", None)
    return "" if packet is None else str(packet).removeprefix("aten.").removesuffix("_")


def result_type(node: Node) -> tuple[Shape, Any]:
    """Return shape and type of the first result, as in PyTorch."""
    first = _first_result(node)
    if first is None:
        return (), None
    if varies(node):
        line, why = source_line(node), node.meta.get(WHY, "")
        raise Unsupported(
            f"a result whose size depends on the data{line and f' ({line})'}{why and f': {why}'}; "
            "compute with all elements, and choose among the results by torch.where(chosen, y, 0.0)"
        )
    return tuple(first.shape), WITHIN.get(first.dtype)


def varies(node: Node) -> bool:
    """Return whether the size of the first result depends on the data."""
    first = _first_result(node)
    return first is not None and not all(isinstance(size, int) for size in first.shape)


def _first_result(node: Node) -> torch.Tensor | None:
    value = node.meta.get("val")
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    return first if isinstance(first, torch.Tensor) else None


def results_of(body: torch.fx.GraphModule) -> Any:
    """Return the results of a traced body."""
    (output,) = (inner for inner in body.graph.nodes if inner.op == "output")
    return output.args[0]


def placeholders(nodes: Iterable[Node]) -> list[Node]:
    """Return the names of a traced body's arguments."""
    return [inner for inner in nodes if inner.op == "placeholder"]


def module_path(node: Node) -> str:
    """Return the path of the innermost module that this operator was traced in."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return str(stack[-1][0]) if stack else ""


def source_line(node: Node) -> str:
    """Return the line of the module's code that called this operator, with file and number."""
    lines = [line.strip() for line in node.meta.get("stack_trace", "").splitlines()]
    places = [index for index, line in enumerate(lines[:-1]) if line.startswith("File ")]
    match = re.match(r'File "(.*)", line (\d+)', lines[places[-1]]) if places else None
    return f"`{lines[places[-1] + 1]}` at {match[1]}:{match[2]}" if match else ""


def quoted(file: str, number: int) -> str:
    """Return a line of the module's code, if it can be read, with file and number."""
    text = linecache.getline(file, number).strip()
    return f"`{text}` at {file}:{number}" if text else f"at {file}:{number}"


def is_empty(node: Node) -> bool:
    """Whether a result is a single tensor without elements, whatever the data."""
    value = node.meta.get("val")
    sizes = value.shape if isinstance(value, torch.Tensor) else ()
    return any(isinstance(size, int) and size == 0 for size in sizes)


def without_elements(node: Node) -> Any:
    """Return constants for results without elements, which need no computation."""
    values = node.meta["val"]
    if isinstance(values, torch.Tensor):
        return torch.empty(values.shape, dtype=values.dtype)
    if any(value.numel() for value in values):
        raise Unsupported(EMPTY)
    return [torch.empty(value.shape, dtype=value.dtype) for value in values]
