"""Decompose operators without a rule: by our definitions, or else by PyTorch's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from pockengine.frontends.torch.aten import has_rule
from pockengine.frontends.torch.definitions import DEFINITIONS


def decompose(node: Node) -> GraphModule | None:
    """Trace the definition of one operator; None if PyTorch has none.

    The graph's placeholders are `node.all_input_nodes`, in order. Only operators without side
    effects are looked up.
    """
    sources = node.all_input_nodes
    if not all(_is_tensor(source) for source in sources):
        return None
    examples = [source.meta["val"] for source in sources]
    mode = detect_fake_mode(examples)
    if mode is None:
        return None
    with _without_onednn():
        return _traced(node, mode, examples)


def _traced(node: Node, mode: Any, examples: list[Any]) -> GraphModule | None:
    for definition in _definitions(node.target):
        try:
            with mode, torch.no_grad():
                traced: GraphModule = make_fx(_call(node, definition))(*examples)
            return traced
        except Exception:  # a definition that cannot take these arguments is none for them
            continue
    return None


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Prevent definitions that use oneDNN's operators, whose LSTM has no definition."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _call(node: Node, definition: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the node's tensors that applies a definition."""

    def call(*values: torch.Tensor) -> Any:
        known = dict(zip(node.all_input_nodes, values, strict=True))

        def plain(argument: Any) -> Any:
            if isinstance(argument, (list, tuple)):
                return [plain(item) for item in argument]
            return known[argument] if isinstance(argument, Node) else argument

        kwargs = {name: plain(argument) for name, argument in node.kwargs.items()}
        return definition(*(plain(argument) for argument in node.args), **kwargs)

    return call


def missing_rule(graph: GraphModule) -> str | None:
    """Name the first operator of a definition that has neither a rule nor a definition."""
    for node in graph.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            name = str(node.target).removeprefix("aten.")
            known = has_rule(name) or _definitions(node.target)
            if not known and node.all_input_nodes:
                return str(node.target)
    return None


def _definitions(target: Any) -> list[Callable[..., Any]]:
    """Return an operator's definition: ours, PyTorch's composite kernel, or its formula."""
    if target._schema.is_mutable:
        plain = _functional(target)
        if not isinstance(plain, torch._ops.OpOverload):
            return [] if plain is None else [plain]
        return [plain, *_definitions(plain)]
    key = "CompositeImplicitAutograd"
    definitions = [DEFINITIONS[target]] if target in DEFINITIONS else []
    if torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key):
        definitions.append(target.decompose)
    if target in decomposition_table:
        definitions.append(decomposition_table[target])
    return definitions


def _functional(target: Any) -> Any:
    """Return the functional form of an in-place operator: relu of relu_, div of div.out."""
    namespace, _, name = target._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    outs = [one.name for one in target._schema.arguments if one.is_out]
    if packet is None or not (outs or name.endswith("_")):
        return None
    for overload_name in packet.overloads():
        overload = getattr(packet, overload_name)
        if _takes(overload) == _takes(target) and not overload._schema.is_mutable:
            return _without(overload, outs) if outs else overload
    return None


def _without(overload: Any, outs: list[str]) -> Callable[..., Any]:
    """Return the operator for calls with an out argument."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return overload(*args, **{key: x for key, x in kwargs.items() if key not in outs})

    return call


def _takes(overload: Any) -> list[tuple[str, str]]:
    """Return the names and types of an operator's arguments, except output arguments."""
    return [(one.name, str(one.type)) for one in overload._schema.arguments if not one.is_out]


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
