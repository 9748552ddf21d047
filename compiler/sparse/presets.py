"""Schemes that need no file: full, bias-only, head-only, last-N-blocks.

The head is the block whose parameters the forward pass reads last; it trains in every preset, as a
new task needs new outputs.
"""

import re

from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.sparse.lora import lora
from pockengine.compiler.sparse.scheme import FULL, Scheme
from pockengine.errors import SchemeError

PRESETS = ("full", "bias-only", "head-only", "last-N-blocks", "lora", "lora-RANK")

QUERY_VALUE = (
    *("query", "value", "query_proj", "value_proj", "q_lin", "v_lin", "q_proj", "v_proj", "q"),
    *("v", "wq", "wv", "qkv", "Wqkv", "query_key_value", "c_attn", "in_proj"),
)
"""Names of attention's projections to queries and values, family by family, as PEFT's defaults."""


def preset(name: str, graph: Graph) -> Scheme:
    """Build a preset scheme for this forward graph; SchemeError lists the presets."""
    if name == "full":
        return Scheme(name, (), default=FULL)
    blocks = blocks_of(graph)
    if name == "head-only":
        return _blocks_scheme(name, blocks[-1:])
    if name == "bias-only":
        biases = [param for params in blocks for param in params if param.endswith("bias")]
        return _names_scheme(name, [*biases, *blocks[-1]])
    match = re.fullmatch(r"last-(\d+)-blocks", name)
    if match:
        return _blocks_scheme(name, blocks[-1 - int(match[1]) :])
    match = re.fullmatch(r"lora(?:-(\d+))?", name)
    if match:
        return _lora_scheme(name, int(match[1] or 8), blocks)
    raise SchemeError(f"unknown scheme {name!r}; presets: {', '.join(PRESETS)}; or a .toml file")


def blocks_of(graph: Graph) -> list[list[str]]:
    """Names of trainable parameters by block, in the order in which the forward pass reads them.

    A block is a module path up to its first number among three parts (`features.3`,
    `layer4.1`, `encoder.layer.5`), or the module itself where there is none (`fc`).
    """
    blocks: dict[str, list[str]] = {}
    for node in graph.nodes:
        for operand in node.operands:
            param = graph.param_of(operand)
            if param is not None and param.trainable:
                names = blocks.setdefault(_block(param.name), [])
                if param.name not in names:
                    names.append(param.name)
    return list(blocks.values())


def _block(name: str) -> str:
    parts = name.split(".")[:-1]
    numbered = [index for index, part in enumerate(parts[:3]) if part.isdigit()]
    if not numbered:
        return ".".join(parts)
    first = numbered[0]
    return ".".join(parts[: first + 1])


def _blocks_scheme(name: str, blocks: list[list[str]]) -> Scheme:
    return _names_scheme(name, [param for params in blocks for param in params])


def _lora_scheme(name: str, rank: int, blocks: list[list[str]]) -> Scheme:
    """Adapters beside attention's queries and values, with alpha twice the rank, and the head."""
    if rank < 1:
        raise SchemeError(f"scheme {name}: the rank must be at least 1")
    head = blocks[-1]
    targets = [
        param
        for params in blocks[:-1]
        for param in params
        if param.rpartition(".")[2] in ("weight", "kernel") and param.split(".")[-2] in QUERY_VALUE
    ]
    if not targets:
        raise SchemeError(
            f"scheme {name}: no attention projection has a known name "
            f"({', '.join(QUERY_VALUE)}); name the targets in a scheme file"
        )
    return lora(rank, 2.0 * rank, targets, head, name=name)


def _names_scheme(name: str, params: list[str]) -> Scheme:
    return Scheme(name, tuple((param, FULL) for param in dict.fromkeys(params)))
