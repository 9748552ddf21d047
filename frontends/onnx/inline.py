"""Replace functions by their bodies: the model's own, and the standard's where we have no rule.

The standard defines many operators by others (attention, rotary embeddings, ...). Our own rules
come first; other operators are expanded, without the weights, which do not matter here.
"""

from collections.abc import Sequence

from onnx import ModelProto, NodeProto, defs, inliner

from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.control import CONTROL, nested
from pockengine.frontends.onnx.file import without_data
from pockengine.frontends.onnx.fold import can_fold
from pockengine.frontends.onnx.ops import find_rule
from pockengine.frontends.onnx.sequences import is_sequence

MAX_NODES = 10**6
"""Limit of operators after expansion: nested functions can grow without bounds."""
MAX_DEPTH = 8
"""Maximum nesting depth of the standard's functions."""


def flat_nodes(model: ModelProto) -> Sequence[NodeProto]:
    """Return the graph's operators, in order, after expanding functions.

    A function whose body depends on unknown types is not expanded, and refused by name. Raises
    ImportModelError when the model's own functions grow beyond all measure.
    """
    if not model.functions and not _expandable(model):
        return model.graph.node
    bare = without_data(model)
    try:
        if model.functions:
            _check_growth(model)
            bare = inliner.inline_local_functions(bare)
    except (RuntimeError, ValueError) as error:
        raise ImportModelError(
            f"the functions of {model.graph.name!r} cannot be expanded: {error}"
        ) from error
    for _ in range(MAX_DEPTH):
        names = _expandable(bare)
        if not names:
            break
        _write_defaults(bare, names)
        try:
            bare = inliner.inline_selected_functions(bare, names, inline_schema_functions=True)
        except (RuntimeError, ValueError):
            break
    return bare.graph.node


def is_control(node: NodeProto) -> bool:
    """Return whether this operator has subgraphs."""
    return node.domain in ("", "ai.onnx") and node.op_type in CONTROL


def is_known(node: NodeProto) -> bool:
    """Return whether an operator has a rule."""
    constant = node.op_type == "Constant" or can_fold(node)
    constant = constant or is_control(node) or is_sequence(node)
    return constant or find_rule(node.domain, node.op_type) is not None


def _expandable(model: ModelProto) -> list[tuple[str, str]]:
    """Find the operators that we have no rule for and the standard has a body for."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    functions = set()
    for node in nested(model.graph.node):
        version = versions.get(node.domain)
        if (
            not is_known(node)
            and version is not None
            and defs.has(node.op_type, version, node.domain)
        ):
            schema = defs.get_schema(node.op_type, version, node.domain)
            if schema.has_function or schema.has_context_dependent_function:
                functions.add((node.domain, node.op_type))
    return sorted(functions)


def _write_defaults(model: ModelProto, functions: Sequence[tuple[str, str]]) -> None:
    """Add missing attributes to calls: bodies refer to them without a default."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for node in nested(model.graph.node):
        if (node.domain, node.op_type) in functions:
            schema = defs.get_schema(node.op_type, versions[node.domain], node.domain)
            written = {attribute.name for attribute in node.attribute}
            for name, attribute in schema.attributes.items():
                if name not in written and attribute.default_value.name:
                    node.attribute.append(attribute.default_value)


def _check_growth(model: ModelProto) -> None:
    """Count the operators after expansion, before it happens; functions call earlier ones only."""
    bodies = {(body.domain, body.name): body for body in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def count(nodes: Sequence[NodeProto], depth: int) -> int:
        if depth > len(bodies):
            raise ImportModelError(f"the functions of {model.graph.name!r} call each other")
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in bodies and key not in sizes:
                sizes[key] = count(bodies[key].node, depth + 1)
            total += sizes.get(key, 1)
        return total

    try:
        total = count(model.graph.node, 0)
    except RecursionError:
        total = MAX_NODES + 1
    if total > MAX_NODES:
        raise ImportModelError(
            f"the functions of {model.graph.name!r} expand to {total} operators; {MAX_NODES} is "
            "the limit"
        )
