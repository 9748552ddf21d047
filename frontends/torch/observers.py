"""Rounding in quantization-aware training, whose observers must be off when a model is compiled."""

import torch
from torch import nn

from pockengine.errors import ImportModelError


def check_observers(module: nn.Module) -> None:
    """Raise an ImportModelError if fake quantizers still update their ranges. They do in evaluation
    too, and their initialization depends on the data.
    """
    parts = {name: part for name, part in module.named_modules() if _observes(part)}
    if parts:
        name, part = next(iter(parts.items()))
        others = f" and {len(parts) - 1} more observe" if len(parts) > 1 else " observes"
        package = type(part).__module__.rpartition(".")[0]
        raise ImportModelError(
            f"{name or type(module).__name__}{others} ranges, in evaluation too, and a compiled "
            "program has fixed ones; run the model on some batches in PyTorch, then "
            f"model.apply({package}.disable_observer), and compile it"
        )


def _observes(part: nn.Module) -> bool:
    enabled = getattr(part, "observer_enabled", None)
    if not (isinstance(enabled, torch.Tensor) and hasattr(part, "disable_observer")):
        return False
    return bool(enabled.reshape(-1)[0])


def rounded(
    x: torch.Tensor,
    observer_on: torch.Tensor,
    fake_quant_on: torch.Tensor,
    running_min: torch.Tensor,
    running_max: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> torch.Tensor:
    """Do what `torch.fused_moving_avg_obs_fake_quant` does when its observer is off."""
    if fake_quant_on[0] != 1:
        return x
    if not per_row_fake_quant:
        return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, quant_min, quant_max)
    return torch.fake_quantize_per_channel_affine(
        x, scale, zero_point, ch_axis, quant_min, quant_max
    )
