"""TinyEngine's training graph as buffers, fused into kernels as by this compiler.

The graph is mit-han-lab/tinyengine's `49kb-int8-graph.json`: MCUNet at 128x128, forward in int8,
backward in float. The fusions: a convolution with its truncation; an input gradient with mask and
scale; a weight gradient in one kernel, which also applies it. For a truncated value the backward
pass needs one saved bit per element.
"""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from pockengine.compiler.memory.lifetime import Buffer

BYTES = {"int8": 1, "int32": 4, "float32": 4}
KERNELS = {"sum", "nn.conv2d_transpose", "tile", "nn.conv2d"}
ALWAYS = {
    "nn.mcutruncate",
    "nn.mcuadd",
    "mcumean",
    "nn.log_softmax",
    "nn.cross_entropy_with_logits",
}

Op = Mapping[str, Any]


def buffers_of(path: Path) -> list[Buffer]:
    """Return the values in memory, and the ops between which each is live."""
    ops: list[Op] = json.loads(path.read_text())
    readers: dict[str, set[str]] = {}
    for op in ops:
        for value in op["inputs"]:
            readers.setdefault(value["name"], set()).add(op["type"])
    buffers: dict[str, Buffer] = {"input": Buffer(prod(ops[0]["inputs"][0]["shape"]), -1, -1)}
    sources: dict[str, set[str]] = {"input": {"input"}}
    places: dict[str, int] = {}
    for place, op in enumerate(ops):
        reads = {name for v in op["inputs"] for name in sources.get(v["name"], ())}
        (result,) = op["outputs"]
        name = result["name"]
        places[name] = place
        if _is_mask(op):
            first = min(places[v["name"]] for v in _compared(ops, op))
            buffers[name] = Buffer(-(-prod(result["shape"]) // 8), first, first)
            sources[name] = {name}
            continue
        if _is_kept(op, result, readers.get(name, set())):
            buffers[name] = Buffer(_bytes(result), place, place)
            sources[name] = {name}
        else:
            sources[name] = reads
        if sources[name] == {name}:
            for read in reads:
                buffers[read].last = max(buffers[read].last, place)
    return list(buffers.values())


def _is_mask(op: Op) -> bool:
    return op["type"] == "multiply" and op["outputs"][0]["dtype"] == "bool"


def _compared(ops: list[Op], mask: Op) -> list[Mapping[str, Any]]:
    """Return the forward value behind a mask: mask <- comparison <- cast <- value."""
    producers = {op["outputs"][0]["name"]: op for op in ops}
    comparison = producers[mask["inputs"][0]["name"]]
    cast = producers[comparison["inputs"][0]["name"]]
    return list(cast["inputs"])


def _is_kept(op: Op, result: Mapping[str, Any], readers: set[str]) -> bool:
    """Return whether an op's result is in memory, not inside a fused kernel."""
    if op["type"] == "nn.mcuconv2d":
        return "nn.mcutruncate" not in readers
    if op["type"] in ALWAYS or result["meta"].get("output_info"):
        return True
    ends_gradient = op["type"] in {"multiply", "divide", "where"} and readers & KERNELS
    return bool(ends_gradient) and len(result["shape"]) == 4


def _bytes(value: Mapping[str, Any]) -> int:
    return prod(value["shape"]) * BYTES[value["dtype"]]
