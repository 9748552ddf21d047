"""Packed sequences of a PyTorch module, whose lengths are known while it is traced.

Packing puts the elements of each time step side by side, as many as there are sequences that
long. Where the lengths are constants, it is indexing by constants; a recurrent layer runs over the
sequences of each length separately.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pockengine.errors import ImportModelError
from pockengine.frontends.faults import theirs
from pockengine.frontends.torch.decisions import Constants, traced_node

LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class PackedSequences(TorchFunctionMode):
    """Replaces PyTorch's functions on packed sequences by ordinary operators."""

    def __init__(self) -> None:
        super().__init__()
        self._constants = Constants()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Replace an operator on packed sequences, or call the function."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "_pack_padded_sequence":
            return _pack(args[0], self._numbers(args[1]), *args[2:])
        if name == "_pad_packed_sequence":
            return _pad(args[0], self._numbers(args[1]), *args[2:])
        if func is torch.zeros:  # a recurrent layer's first state, for the sequences of step 0
            args = tuple(self._size(part) for part in args)
        if name in LAYERS and _is_packed(args):
            return _run(func, args[0], self._numbers(args[1]), *args[2:])
        return theirs(func, *args, **kwargs)

    def _size(self, part: Any) -> Any:
        if isinstance(part, torch.Tensor) and part.dim() == 0 and traced_node(part) is not None:
            return self._numbers(part.reshape(1))[0]
        return part

    def _numbers(self, tensor: torch.Tensor) -> list[int]:
        """Return the values of a tensor of lengths."""
        node = traced_node(tensor)
        constant = tensor if node is None else self._constants.value(node)
        if constant is None:
            raise ImportModelError(
                "pack_padded_sequence is given lengths that depend on the data, and a compiled "
                "model has shapes of its own; run the layer on the padded batch and mask what is "
                "behind the ends, or give the lengths as constants"
            )
        return [int(number) for number in constant.tolist()]


def _is_packed(args: tuple[Any, ...]) -> bool:
    """Whether the second argument of a recurrent layer is the batch sizes, not the state."""
    return isinstance(args[1], torch.Tensor) and not args[1].is_floating_point()


def _pack(
    x: torch.Tensor, lengths: Sequence[int], batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the elements step by step, and how many each step has."""
    steps = x.shape[1 if batch_first else 0]
    falling = all(one >= other for one, other in pairwise(lengths))
    if not falling or not 0 < lengths[-1] <= lengths[0] <= steps:
        raise ImportModelError(
            f"pack_padded_sequence is given the lengths {list(lengths)} for {steps} steps; they "
            "must be from 1 to that number, and sorted unless enforce_sorted=False"
        )
    sizes = [sum(length > step for length in lengths) for step in range(lengths[0])]
    step = torch.tensor([t for t, size in enumerate(sizes) for _ in range(size)])
    row = torch.tensor([r for size in sizes for r in range(size)])
    return (x[row, step] if batch_first else x[step, row]), torch.tensor(sizes)


def _pad(
    data: torch.Tensor, sizes: Sequence[int], batch_first: bool, value: float, total: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sequences padded with `value`, and their lengths."""
    starts, lengths = _starts(sizes), _lengths(sizes)
    steps = max(total, len(sizes))
    places = [
        [starts[t] + row if t < length else len(data) for row, length in enumerate(lengths)]
        for t in range(steps)
    ]
    filled = torch.cat([data, torch.full((1, *data.shape[1:]), value, dtype=data.dtype)])
    padded = filled[torch.tensor(places)]
    return (padded.transpose(0, 1) if batch_first else padded), torch.tensor(lengths)


def _run(
    layer: Callable[..., Any],
    data: torch.Tensor,
    sizes: Sequence[int],
    state: Any,
    *settings: Any,
) -> tuple[torch.Tensor, ...]:
    """Run a recurrent layer over the sequences of each length, which are adjacent."""
    starts, lengths = _starts(sizes), _lengths(sizes)
    outputs, places, states = [], [], []
    for length in dict.fromkeys(lengths):
        rows = [row for row, other in enumerate(lengths) if other == length]
        here = [starts[t] + row for t in range(length) for row in rows]
        x = data[torch.tensor(here)].reshape(length, len(rows), *data.shape[1:])
        first = slice(rows[0], rows[-1] + 1)
        lone = isinstance(state, torch.Tensor)
        own = state[:, first] if lone else [part[:, first] for part in state]
        output, *last = layer(x, own, *settings, False)
        outputs.append(output.flatten(0, 1))
        places += here
        states.append(last)
    order = torch.tensor(places).argsort()
    ends = (torch.cat(parts, 1) for parts in zip(*states, strict=True))
    return (torch.cat(outputs)[order], *ends)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:step]) for step in range(len(sizes))]


def _lengths(sizes: Sequence[int]) -> list[int]:
    return [sum(size > row for size in sizes) for row in range(sizes[0])]
