"""bfloat16 and float16 tensors within a model: computed in f32, and rounded where PyTorch
rounds.
"""

from typing import Any

import torch
from torch.fx import Node

from pockengine.compiler.ir import F32, Builder, DType
from pockengine.frontends.emit.halves import rounded
from pockengine.frontends.layout import Tensor
from pockengine.frontends.torch.nodes import name_of

HALVES = {torch.bfloat16: DType.BF16, torch.float16: DType.F16}
_EXACT = """
    _unsafe_view abs amax amin cat ceil clone constant_pad_nd contiguous copy embedding expand
    flatten flip floor gather index index_select lift_fresh_copy masked_fill max max_pool1d
    max_pool2d max_pool3d maximum min minimum narrow neg permute relu repeat repeat_interleave
    reshape roll round select sign slice split split_with_sizes squeeze stack t tile topk transpose
    tril triu unsqueeze view where zeros_like
"""
EXACT = frozenset(_EXACT.split())
"""Operators whose results are elements of their operands, their negatives, or integers."""


SCALED = frozenset({"div", "mul"})
"""Operators that do not round a number next to halves; others round it first."""


def rounded_arguments(g: Builder, node: Node, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's arguments; numbers beside halves are rounded as PyTorch rounds them."""
    value = node.meta.get("val")
    dtype = HALVES.get(value.dtype) if isinstance(value, torch.Tensor) else None
    if dtype is None or name_of(node) in SCALED:
        return arguments
    return {
        name: _number(g, part, value.dtype) if name in ("other", "exponent") else part
        for name, part in arguments.items()
    }


def _number(g: Builder, part: Any, dtype: torch.dtype) -> Any:
    if isinstance(part, float):
        return torch.tensor(part, dtype=dtype).item()
    is_number = isinstance(part, Tensor) and part.dtype is F32 and not part.shape
    return rounded(g, part, HALVES[dtype]) if is_number else part


def fitted(g: Builder, node: Node, result: Any) -> Any:
    """Round an operator's results to the types that they have in PyTorch."""
    values = node.meta.get("val")
    if isinstance(result, (list, tuple)):
        if not isinstance(values, (list, tuple)):
            return result
        return [_fitted(g, node, x, y) for x, y in zip(result, values, strict=False)]
    return _fitted(g, node, result, values)


def _fitted(g: Builder, node: Node, result: Any, value: Any) -> Any:
    dtype = HALVES.get(value.dtype) if isinstance(value, torch.Tensor) else None
    if dtype is None or not isinstance(result, Tensor) or result.dtype is not F32:
        return result
    return result if _is_exact(node, value.dtype) else rounded(g, result, dtype)


def _is_exact(node: Node, dtype: torch.dtype) -> bool:
    """Whether an operator moves elements of this type, and computes nothing."""
    sources = [source.meta.get("val") for source in node.all_input_nodes]
    same = all(
        x.dtype is dtype for x in sources if isinstance(x, torch.Tensor) and x.is_floating_point()
    )
    return same and name_of(node) in EXACT
