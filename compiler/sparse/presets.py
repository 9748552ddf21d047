"""Schemes that need no file: full, bias-only, head-only, last-N-blocks, sparse, sparse-A-B, lora.

The head trains in every preset, as a new task needs new outputs: it is defined in families.toml for
a known family, else it is the block whose parameters the forward pass reads last. "sparse" is the
paper's pattern: biases from some block to the end, and the most important weights of the last
blocks; "sparse-11-20" trains those weights of blocks 11 to 20, from 0, and biases from block 11 to
the end. If a family has no biases (LLaMA), the norms' weights take their role.
"""

import re
from collections.abc import Mapping

from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.sparse.blocks import group_blocks, path_of
from pockengine.compiler.sparse.choice import VARIANTS
from pockengine.compiler.sparse.families import recognize, unknown_family
from pockengine.compiler.sparse.idle import influential
from pockengine.compiler.sparse.lora import PACKED, lora
from pockengine.compiler.sparse.scheme import FULL, Scheme
from pockengine.errors import SchemeError

PRESETS = {
    "full": "every parameter",
    "bias-only": "biases, and the head",
    "head-only": "the head",
    "last-N-blocks": "the last N blocks, and the head",
    "sparse": "the paper's pattern: weights and biases of the last blocks, and the head",
    "sparse-A-B": "weights of blocks A to B (from 0), biases from block A on, and the head",
    "lora": "adapters of rank 8 of attention's queries and values, and the head",
    "lora-RANK": "the same with adapters of this rank",
    "dora, dora-RANK": "the same by DoRA: outputs have magnitudes too",
    "rslora, rslora-RANK": "the same by rsLoRA: products are scaled by alpha / sqrt(rank)",
}
"""Names of presets, with the parameters each trains."""

_NAMES = re.compile(
    r"full|bias-only|head-only|last-\d+-blocks|sparse(-\d{1,4}-\d{1,4})?|(lora|dora|rslora)(-\d+)?"
)

QUERY_VALUE = (
    *("query", "value", "query_proj", "value_proj", "q_lin", "v_lin", "q_proj", "v_proj", "q"),
    *("v", "wq", "wv", "qkv", "Wqkv", "query_key_value", "c_attn", "in_proj"),
    *("qkv_proj", "in_proj_qkv", "in_proj_qkvz"),
)
"""Names of attention's query and value projections by family, as in PEFT's defaults.

The last two are those of Qwen's linear attention."""

QUERY_VALUE_WEIGHTS = (PACKED, "q_proj_weight", "v_proj_weight")
"""The same for nn.MultiheadAttention, which has several weights; the last two for unequal sizes."""


def check_preset(name: str) -> None:
    """Raise SchemeError, which lists the presets, for an unknown name."""
    if _NAMES.fullmatch(name) is None:
        raise SchemeError(
            f"unknown scheme {name!r}; presets: {', '.join(PRESETS)}; or a .toml file"
        )


def preset(name: str, graph: Graph) -> Scheme:
    """Build a preset scheme for this forward graph; SchemeError lists the presets."""
    check_preset(name)
    if name == "full":
        return Scheme(name, (), default=FULL)
    blocks = blocks_of(graph)
    if name == "head-only":
        return _blocks_scheme(name, blocks[-1:])
    if name == "bias-only":
        return _names_scheme(name, [*_biases(blocks, graph), *blocks[-1]])
    if name == "sparse":
        return _sparse_scheme(name, blocks)
    match = re.fullmatch(r"last-(\d+)-blocks", name)
    if match:
        return _blocks_scheme(name, blocks[-1 - int(match[1]) :])
    match = re.fullmatch(r"sparse-(\d{1,4})-(\d{1,4})", name)
    if match:
        return _sparse_scheme(name, blocks, (int(match[1]), int(match[2])))
    kind, _, rank = name.partition("-")
    return _lora_scheme(name, kind, int(rank or 8), blocks)


def blocks_of(graph: Graph) -> list[list[str]]:
    """Names of trainable parameters by block, in forward order.

    Parameters that the loss does not depend on are left out. The last block is the head;
    compiler/sparse/blocks.py has the rules.
    """
    params = [graph.param_of(operand) for node in graph.nodes for operand in node.operands]
    known = influential(graph)
    names = dict.fromkeys(
        param.name
        for param in params
        if param is not None and param.trainable and param.name in known
    )
    vectors = {name for name in names if len(graph.params[name].value.shape) < 2}
    return group_blocks(list(names), recognize(list(names)), vectors)


def _flat(blocks: list[list[str]]) -> list[str]:
    return [param for params in blocks for param in params]


def _biases(blocks: list[list[str]], graph: Graph) -> list[str]:
    """Names of all biases, or of parameters in their role for a family without."""
    family = recognize(_flat(blocks))
    known = set(family.biases if family is not None else ())
    users = graph.users()
    return [param for param in _flat(blocks) if param in known or _is_bias(graph, users, param)]


def _is_bias(graph: Graph, users: Mapping[Value, list[Node]], name: str) -> bool:
    """Whether a param is a bias: `in_proj_bias`, `bias_ih_l0`, or a vector that is added.

    The latter covers Haiku's `b` and `offset` and Keras's `beta`.
    """
    leaf = path_of(name)[-1]
    if leaf.endswith("bias"):
        return True
    value = graph.params[name].value
    if len(value.shape) != 1:
        return False
    added = _is_summand(users, value) and not leaf.endswith(("weight", "kernel", "scale"))
    return added or re.search(r"(^|_)bias(_|$)", leaf) is not None


def _is_summand(users: Mapping[Value, list[Node]], value: Value) -> bool:
    """Whether every reader of a value, or of a reshaped copy, adds it to something."""
    readers = users.get(value, ())
    return bool(readers) and all(_adds(users, node, value) for node in readers)


def _adds(users: Mapping[Value, list[Node]], node: Node, value: Value) -> bool:
    definition = lookup(node.op)
    if definition.copies:
        return _is_summand(users, node.result)
    return node.operands.index(value) in definition.shifts and not definition.stored


def _sparse_scheme(
    name: str, blocks: list[list[str]], between: tuple[int, int] | None = None
) -> Scheme:
    """Train the paper's pattern of a known family; SchemeError lists an unknown family's names."""
    family = recognize(_flat(blocks))
    if family is None:
        raise unknown_family(name, _flat(blocks))
    if between is None:
        return _names_scheme(name, [*family.sparse(), *blocks[-1]])
    first, last = between
    if not first <= last < len(family.blocks):
        raise SchemeError(
            f"scheme {name}: the model has blocks 0 to {len(family.blocks) - 1}; name two of them, "
            "the first one first"
        )
    return _names_scheme(name, [*family.sparse_between(first, last), *blocks[-1]])


def _blocks_scheme(name: str, blocks: list[list[str]]) -> Scheme:
    return _names_scheme(name, _flat(blocks))


def _lora_scheme(name: str, kind: str, rank: int, blocks: list[list[str]]) -> Scheme:
    """Adapters for attention's queries and values, with alpha twice the rank, plus the head."""
    if rank < 1:
        raise SchemeError(f"scheme {name}: the rank must be at least 1")
    head = blocks[-1]
    targets = [param for params in blocks[:-1] for param in params if _is_query_value(param)]
    if not targets:
        raise SchemeError(
            f"scheme {name}: no attention projection has a known name "
            f"({', '.join(QUERY_VALUE)}); name the targets in a scheme file"
        )
    variants = {variant: True for variant in VARIANTS if variant == kind}
    return lora(rank, 2.0 * rank, targets, head, name=name, **variants)


def _is_query_value(name: str) -> bool:
    """Whether a weight projects to queries and values."""
    parts = path_of(name)
    if parts[-1] in QUERY_VALUE_WEIGHTS:
        return True
    return parts[-1] in ("weight", "kernel") and any(part in QUERY_VALUE for part in parts[-2:-1])


def _names_scheme(name: str, params: list[str]) -> Scheme:
    return Scheme(name, tuple((param, FULL) for param in dict.fromkeys(params)))
