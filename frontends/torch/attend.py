"""Attention whose softmax is returned too: an internal operator for decoders with a cache."""

import torch

LIBRARY = torch.library.Library("pockengine", "FRAGMENT")
LIBRARY.define("attend(Tensor q, Tensor k, Tensor v, Tensor seen, float scale) -> (Tensor, Tensor)")
ATTEND = torch.ops.pockengine.attend.default
"""y and stats of compiler/ops/attention.py; `seen` marks the visible scores."""


def _shapes(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = q.shape[:3]
    return q.new_empty((*rows, v.shape[3])), q.new_empty((*rows, 2))


LIBRARY.impl("attend", _shapes, "CompositeExplicitAutograd")
