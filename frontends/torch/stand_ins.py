"""Functions of PyTorch that have no trace of their own, as operators that have one.

A trace cannot run the kernel of `ctc_loss`, and stops where a function looks at the data:
`gaussian_nll_loss` for negative variances, `cov` for weights, an encoder for a mask that is causal.
While tracing, the functions here stand in for them.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional
from torch.nn.modules import transformer
from torch.overrides import TorchFunctionMode

from pockengine.errors import ImportModelError

LIBRARY = torch.library.Library("pockengine", "FRAGMENT")
LIBRARY.define(
    "ctc_loss(Tensor x, Tensor labels, Tensor lengths, Tensor label_lengths, int blank) -> Tensor"
)
LIBRARY.impl(
    "ctc_loss",
    lambda x, labels, lengths, label_lengths, blank: x.new_zeros(x.shape[1]),
    "CompositeExplicitAutograd",
)


@contextmanager
def stand_ins() -> Iterator[None]:
    """Replace what cannot be traced while a module is traced."""
    causal = patch.object(transformer, "_detect_is_causal_mask", _told_causal)
    with causal, _Calls():
        yield


class _Calls(TorchFunctionMode):
    """Calls what stands in for a function."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function, or what stands in for it."""
        return INSTEAD.get(func, func)(*args, **(kwargs or {}))


def _told_causal(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Say whether the user calls a mask causal; it is applied as it is either way."""
    return is_causal is True


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """Compute the losses by our operator, whose labels are a row for each sample."""
    single = log_probs.dim() == 2
    logits = log_probs.unsqueeze(1) if single else log_probs
    samples = logits.shape[1]
    lengths, label_lengths = (
        torch.as_tensor(given).reshape(samples) for given in (input_lengths, target_lengths)
    )
    if single or targets.dim() == 2:
        labels = targets.reshape(samples, -1)
    else:
        labels = _rows(targets, label_lengths, target_lengths)
    losses = torch.ops.pockengine.ctc_loss(logits, labels, lengths, label_lengths, blank)
    if zero_infinity:
        losses = torch.where(losses == math.inf, 0.0, losses)
    if reduction == "mean":
        return (losses / label_lengths.clamp(min=1)).mean()
    if reduction == "sum":
        return losses.sum()
    return losses[0] if single else losses


def _rows(targets: torch.Tensor, lengths: torch.Tensor, given: Any) -> torch.Tensor:
    """Cut labels that lie one sample after the other into rows, as long as the longest may be."""
    longest = len(targets) if isinstance(given, torch.Tensor) else max(given)
    starts = lengths.cumsum(0) - lengths
    places = starts.unsqueeze(1) + torch.arange(longest)
    return targets[places.clamp(max=len(targets) - 1)]


def gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """Compute what PyTorch does; variances are taken to be at least 0."""
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    elif var.size() != input.size() and input.size()[:-1] == var.size():
        var = var.unsqueeze(-1)
    held = var.detach().clamp(min=eps)  # its gradient is that of a variance that is large enough
    var = var + (held - var.detach())
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return {"mean": loss.mean, "sum": loss.sum}.get(reduction, lambda: loss)()


def cov(
    x: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the covariances of rows, each column an observation."""
    if fweights is not None or aweights is not None:
        raise ImportModelError("torch.cov is given weights; multiply the observations by them")
    rows = x.reshape(-1, x.shape[-1])
    rows = rows - rows.mean(1, keepdim=True)
    product = rows @ rows.T / (x.shape[-1] - correction)
    return product.squeeze() if x.dim() < 2 else product


def corrcoef(x: torch.Tensor) -> torch.Tensor:
    """Return the correlations of rows."""
    shared = cov(x)
    if x.dim() < 2:
        return shared / shared
    deviations = shared.diagonal().sqrt()
    return (shared / deviations[:, None] / deviations).clamp(-1, 1)


INSTEAD: Mapping[Any, Callable[..., Any]] = {
    functional.ctc_loss: ctc_loss,
    functional.gaussian_nll_loss: gaussian_nll_loss,
    **dict.fromkeys((torch.cov, torch.Tensor.cov), cov),
    **dict.fromkeys((torch.corrcoef, torch.Tensor.corrcoef), corrcoef),
}
"""What stands in, by PyTorch's functions."""
