"""PyTorch's own definitions of operators by simpler ones, for operators without a rule here."""

from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from pockengine.frontends.aten import rule_for


def decompose(node: Node) -> GraphModule | None:
    """Trace the definition of one operator; None where PyTorch has none.

    The graph's placeholders stand for `node.all_input_nodes`, in order. Only operators that write
    to nothing are looked up.
    """
    target: Any = node.target
    function = _definition(target)
    sources = node.all_input_nodes
    if function is None or not all(_is_tensor(source) for source in sources):
        return None

    def call(*values: torch.Tensor) -> Any:
        known = dict(zip(sources, values, strict=True))
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
        return function(*args, **kwargs)

    examples = [source.meta["val"] for source in sources]
    mode = detect_fake_mode(examples)
    if mode is None:
        return None
    with mode, torch.no_grad():
        traced: GraphModule = make_fx(call)(*examples)
    return traced


def missing_rule(graph: GraphModule) -> str | None:
    """Name the first operator of a definition that has neither a rule nor a definition."""
    for node in graph.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            name = str(node.target).removeprefix("aten.")
            if rule_for(name) is None and _definition(node.target) is None and node.all_input_nodes:
                return str(node.target)
    return None


def _definition(target: Any) -> Any:
    if target._schema.is_mutable:
        return None
    if target in decomposition_table:
        return decomposition_table[target]
    key = "CompositeImplicitAutograd"
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key)
    return target.decompose if composite else None


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
