"""Replace untraceable PyTorch functions by traceable ones.

A trace cannot run the kernels of `ctc_loss` and `lstsq`, and fails if a function checks the data:
`gaussian_nll_loss` for negative variances, `cov` for weights, an encoder for a causal mask. While
tracing, the functions here stand in for them.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.fx.experimental import proxy_tensor
from torch.nn import functional
from torch.nn.modules import batchnorm, transformer
from torch.overrides import TorchFunctionMode

from pockengine.errors import ImportModelError
from pockengine.frontends.faults import theirs
from pockengine.frontends.torch import observers
from pockengine.frontends.torch.replaced import replaced

LIBRARY = torch.library.Library("pockengine", "FRAGMENT")
LIBRARY.define(
    "ctc_loss(Tensor x, Tensor labels, Tensor lengths, Tensor label_lengths, int blank) -> Tensor"
)
LIBRARY.define(
    "cumulative_batch_norm(Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor var, "
    "Tensor count, float eps) -> Tensor"
)
LIBRARY.impl(
    "cumulative_batch_norm",
    lambda x, weight, bias, mean, var, count, eps: torch.empty_like(x),
    "CompositeExplicitAutograd",
)
LIBRARY.impl(
    "ctc_loss",
    lambda x, labels, lengths, label_lengths, blank: x.new_zeros(x.shape[1]),
    "CompositeExplicitAutograd",
)


@contextmanager
def stand_ins() -> Iterator[None]:
    """Replace functions that cannot be traced while a module is traced."""
    causal = replaced(transformer, "_detect_is_causal_mask", _is_called_causal)
    norms = replaced(batchnorm._BatchNorm, "forward", _batch_norm)
    lists = _sliced(nn.ModuleList, nn.ModuleList)
    chains = _sliced(nn.Sequential, lambda parts: nn.Sequential(*parts))
    with causal, norms, lists, chains, _Calls():
        yield


class _Calls(TorchFunctionMode):
    """Calls the replacement of a function."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function or its replacement."""
        kwargs = kwargs or {}
        return INSTEAD[func](*args, **kwargs) if func in INSTEAD else theirs(func, *args, **kwargs)


def _is_called_causal(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Whether the user marks a mask as causal; it is applied in either case."""
    return is_causal is True


def _sliced(kind: Any, make: Callable[[list[nn.Module]], nn.Module]) -> Any:
    """Make slices of module lists traceable, as instances of PyTorch's own class.

    They are where modules share parts; PyTorch 2.6 cannot slice them there.
    """
    original = kind.__getitem__
    proxies = getattr(proxy_tensor, "_AttrProxy", ())

    def part(parts: Any, index: Any) -> nn.Module:
        proxied = isinstance(index, slice) and isinstance(parts, proxies)
        found: nn.Module = make(list(parts)[index]) if proxied else original(parts, index)
        return found

    return replaced(kind, "__getitem__", part)


BATCH_NORM = batchnorm._BatchNorm.forward


def _batch_norm(norm: batchnorm._BatchNorm, input: torch.Tensor) -> torch.Tensor:
    """Normalize; an average of all batches so far (momentum=None) reads their count.

    A trace takes the name of its input from here, where the norm is the whole model.
    """
    if norm.momentum is not None or not norm.training or norm.num_batches_tracked is None:
        return BATCH_NORM(norm, input)
    norm._check_input_dim(input)
    count = norm.num_batches_tracked.add_(1)
    averages = (norm.running_mean, norm.running_var, count)
    operator = torch.ops.pockengine.cumulative_batch_norm
    y: torch.Tensor = operator(input, norm.weight, norm.bias, *averages, norm.eps)
    return y


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
        torch.as_tensor(counts).reshape(samples) for counts in (input_lengths, target_lengths)
    )
    if single or targets.dim() == 2:
        labels = targets.reshape(samples, -1)
    elif isinstance(targets.shape[0], torch.SymInt):
        labels = targets  # that a mask selects: `selected_rewrite.py` lays them out
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


def _rows(targets: torch.Tensor, lengths: torch.Tensor, sizes: Any) -> torch.Tensor:
    """Split concatenated labels of all samples into rows of the maximum length."""
    longest = len(targets) if isinstance(sizes, torch.Tensor) else max(sizes)
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
    """Compute PyTorch's result; variances are assumed to be at least 0."""
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    elif var.size() != input.size() and input.size()[:-1] == var.size():
        var = var.unsqueeze(-1)
    clamped = var.detach().clamp(min=eps)  # its gradient is that of a variance that is large enough
    var = var + (clamped - var.detach())
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return {"mean": loss.mean, "sum": loss.sum}.get(reduction, lambda: loss)()


def bincount(
    input: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    """Count the numbers, all below `minlength`; PyTorch counts larger ones too."""
    if weights is not None or minlength < 1:
        raise ImportModelError(
            "torch.bincount has as many results as data say, or has weights: give the number of "
            "classes as minlength, and multiply torch.nn.functional.one_hot by weights"
        )
    return (input.reshape(-1, 1) == torch.arange(minlength)).sum(0)


def repeat_interleave(
    input: torch.Tensor,
    repeats: Any = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> torch.Tensor:
    """Repeat parts by the counts in a tensor, `output_size` parts in all."""
    if not isinstance(repeats, torch.Tensor) or output_size is None:
        arguments = () if repeats is None else (repeats, dim)
        y: torch.Tensor = torch.repeat_interleave(input, *arguments, output_size=output_size)
        return y
    rows, along = (input.reshape(-1), 0) if dim is None else (input, dim)
    ends = repeats.expand(rows.shape[along]).cumsum(0)
    places = (ends <= torch.arange(output_size).unsqueeze(1)).sum(1)
    return rows.index_select(along, places.clamp(max=rows.shape[along] - 1))


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


def lstsq(
    a: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None
) -> torch.return_types.linalg_lstsq:
    """Find the x with the least |a x - b|, of many the least one; a must have full rank."""
    rows, columns = a.shape[-2:]
    vector = b.dim() == 1 or b.shape == a.shape[:-1]
    right = b.unsqueeze(-1) if vector else b
    if rows >= columns:
        q, r = torch.linalg.qr(a)
        x = torch.linalg.solve_triangular(r, q.mT @ right, upper=True)
    else:
        q, r = torch.linalg.qr(a.mT)
        x = q @ torch.linalg.solve_triangular(r.mT, right, upper=False)
    known = rows > columns and driver not in (None, "gelsy")
    residuals = (a @ x - right).square().sum(-2) if known else a.new_empty(0)
    rank = torch.full(a.shape[:-2], min(rows, columns))
    found = (x.squeeze(-1) if vector else x, residuals, rank, a.new_empty(0))
    return torch.return_types.linalg_lstsq(found)


def linear_cross_entropy(*args: Any, options: Any = None, **kwargs: Any) -> torch.Tensor:
    """Compute all classes at once; chunks save memory alone, which is planned otherwise here."""
    y: torch.Tensor = functional.linear_cross_entropy(*args, **kwargs)
    return y


INSTEAD: dict[Any, Callable[..., Any]] = {
    functional.ctc_loss: ctc_loss,
    functional.gaussian_nll_loss: gaussian_nll_loss,
    torch.fused_moving_avg_obs_fake_quant: observers.rounded,
    torch.linalg.lstsq: lstsq,
    **dict.fromkeys((torch.repeat_interleave, torch.Tensor.repeat_interleave), repeat_interleave),
    **dict.fromkeys((torch.bincount, torch.Tensor.bincount), bincount),
    **dict.fromkeys((torch.cov, torch.Tensor.cov), cov),
    **dict.fromkeys((torch.corrcoef, torch.Tensor.corrcoef), corrcoef),
}
"""Stand-ins, by PyTorch's functions."""

if hasattr(functional, "linear_cross_entropy"):  # not in older PyTorch
    INSTEAD[functional.linear_cross_entropy] = linear_cross_entropy
