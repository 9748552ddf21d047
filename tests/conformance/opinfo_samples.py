"""PyTorch's OpInfo samples as modules that return a loss, and their results in eager PyTorch."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

CORE = (
    "add",
    "addmm",
    "log_softmax",
    "matmul",
    "mean",
    "mul",
    "nn.functional.adaptive_avg_pool2d",
    "nn.functional.avg_pool2d",
    "nn.functional.batch_norm",
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv_transpose2d",
    "nn.functional.cross_entropy",
    "nn.functional.embedding",
    "nn.functional.gelu",
    "nn.functional.group_norm",
    "nn.functional.hardswish",
    "nn.functional.interpolate.bilinear",
    "nn.functional.layer_norm",
    "nn.functional.linear",
    "nn.functional.max_pool2d",
    "nn.functional.mse_loss",
    "nn.functional.relu",
    "nn.functional.rms_norm",
    "nn.functional.scaled_dot_product_attention",
    "nn.functional.silu",
    "sigmoid",
    "softmax",
    "sum",
    "tanh",
)
"""Ops that are common in networks fine-tuned on a device: 1,769 samples."""

SEED = 0


class NotRunnable(Exception):
    """A sample without a real loss in eager PyTorch; the message is the reason."""


@dataclass(frozen=True)
class Expected:
    """Eager PyTorch's loss, the magnitude and count of its terms, and all parameter gradients.

    A gradient is None if PyTorch gives none.
    """

    loss: float
    magnitude: float
    elements: int
    gradients: Mapping[str, np.ndarray | None]


class SampleModule(nn.Module):
    """An op on one sample: differentiable tensors are parameters, other tensors are inputs.

    Tensors that the op writes to (running statistics) are buffers. The loss is the sum of all
    elements of the differentiable results, each times a random weight; complex ones are pairs. All
    names start with `prefix`.
    """

    def __init__(self, op: Any, sample: Any, prefix: str) -> None:
        super().__init__()
        self._op, self._process = op.op, sample.output_process_fn_grad
        leaves, self._spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
        self._leaves = [None if i in tensors else leaf for i, leaf in enumerate(leaves)]
        if any(leaf.layout is not torch.strided for leaf in tensors.values()):
            raise NotRunnable("a sparse tensor")
        copies = {i: leaf.detach().clone() for i, leaf in tensors.items()}
        for index, leaf in tensors.items():
            copies[index].requires_grad_(leaf.requires_grad)
        try:
            results = self._results(copies)
        except RuntimeError as error:
            raise NotRunnable(f"eager PyTorch: {error}") from error
        self._differentiable = [i for i, y in enumerate(results) if _is_differentiable(y)]
        if not self._differentiable:
            raise NotRunnable("no result of eager PyTorch is differentiable and float32")
        self._names: dict[int, str] = {}
        self._input_indices: list[int] = []
        self.inputs: list[torch.Tensor] = []
        for index, leaf in tensors.items():
            written = not torch.equal(copies[index], leaf)
            self._declare(index, leaf, f"{prefix}p{index}", written=written)
        self._weights = [f"{prefix}w{index}" for index in self._differentiable]
        generator = torch.Generator().manual_seed(SEED)
        for name, index in zip(self._weights, self._differentiable, strict=True):
            weight = torch.randn(results[index].shape, generator=generator)
            self.register_buffer(name, weight, persistent=False)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        sums = [part.sum() for part in self.terms(inputs)]
        return sums[0] if len(sums) == 1 else torch.stack(sums).sum()

    def terms(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the terms of the loss: the differentiable results, weighted."""
        tensors = {index: getattr(self, name) for index, name in self._names.items()}
        results = self._results(tensors | dict(zip(self._input_indices, inputs, strict=True)))
        pairs = zip(self._differentiable, self._weights, strict=True)
        return [results[index] * getattr(self, name) for index, name in pairs]

    def _results(self, tensors: Mapping[int, torch.Tensor]) -> list[Any]:
        leaves = [tensors.get(index, leaf) for index, leaf in enumerate(self._leaves)]
        x, args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        results = pytree.tree_leaves(self._process(self._op(x, *args, **kwargs)))
        return [_real(y) for y in results]

    def _declare(self, index: int, leaf: torch.Tensor, name: str, *, written: bool) -> None:
        data = leaf.detach().clone()
        if leaf.requires_grad:
            self.register_parameter(name, nn.Parameter(data))
        elif written or not leaf.numel():
            self.register_buffer(name, data)
        else:
            self._input_indices.append(index)
            self.inputs.append(data)
            return
        self._names[index] = name


def _real(y: object) -> Any:
    """Return a complex tensor as pairs of real numbers."""
    if isinstance(y, torch.Tensor) and y.dtype is torch.complex64:
        return torch.view_as_real(y.resolve_conj())
    return y


def _is_differentiable(y: object) -> bool:
    if not isinstance(y, torch.Tensor) or y.layout is not torch.strided:
        return False
    return y.requires_grad and y.dtype is torch.float32


def differentiable_ops() -> dict[str, Any]:
    """Return PyTorch's ops with float32 gradients by full name (with the variant), in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {
        op.full_name: op
        for op in op_db
        if op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")
    }


def samples_of(op: Any, limit: int | None) -> Iterator[tuple[int, Any]]:
    """Yield numbered sample inputs, the same in each run; at most `limit`, evenly spread."""
    torch.manual_seed(SEED)
    np.random.seed(SEED)  # some samples use NumPy's random numbers
    samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=True))
    stride = 1 if limit is None else max(1, -(-len(samples) // limit))
    yield from list(enumerate(samples))[::stride]


def eager(module: SampleModule) -> Expected:
    """Run the forward and backward pass in PyTorch, and restore the module's buffers."""
    buffers = {name: data.clone() for name, data in module.named_buffers()}
    terms = module.terms([x.clone() for x in module.inputs])
    magnitude = float(sum(part.detach().double().abs().sum() for part in terms))
    loss = sum((part.sum() for part in terms[1:]), terms[0].sum())
    parameters = dict(module.named_parameters())
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    for name, data in buffers.items():
        module.get_buffer(name).data.copy_(data)
    arrays = [None if g is None else g.to_dense().numpy().copy() for g in gradients]
    elements = sum(part.numel() for part in terms)
    return Expected(float(loss), magnitude, elements, dict(zip(parameters, arrays, strict=True)))
