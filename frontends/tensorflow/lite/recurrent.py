"""Recurrent layers of TFLite, unrolled over their steps.

States start at zero, as after `reset_all_variables`: they do not persist between training steps.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import IN_OUT, Tensor, permute, plain, reshape
from pockengine.frontends.tensorflow.control import MAX_STEPS
from pockengine.frontends.tensorflow.lite.activation import activated
from pockengine.frontends.tensorflow.lite.registry import LiteContext, lite_op

Maybe = Tensor | None
GATES = 4
"""Input, forget, cell and output, in this order everywhere."""


@dataclass(frozen=True)
class Cell:
    """An LSTM: weights by gate of (hidden, inputs), (hidden, outputs), (hidden,), and a projection.

    The weights of the input gate are None if it is 1 - the forget gate.
    """

    inputs: Sequence[Maybe]
    recurrent: Sequence[Maybe]
    peepholes: Sequence[Maybe]
    biases: Sequence[Maybe]
    projection: Sequence[Maybe]
    norms: Sequence[Maybe]

    @classmethod
    def of(cls, tensors: Sequence[Maybe]) -> "Cell":
        """Take the operator's inputs from the second on, up to the norms; states among them."""
        i = [*tensors, *[None] * (23 - len(tensors))]
        peepholes = [i[8], i[9], None, i[10]]
        return cls(i[:4], i[4:8], peepholes, i[11:15], i[15:17], i[19:23])

    def step(self, g: Builder, options: Any, fed: Sequence[Maybe], h: Tensor, c: Tensor) -> Any:
        """Return the new output and memory, from the inputs' contribution to each gate."""

        def gate(which: int, memory: Tensor) -> Tensor:
            own, weights, hole = fed[which], self.recurrent[which], self.peepholes[which]
            assert own is not None
            assert weights is not None
            x = _add(g, own, emit.matmul(g, h, permute(weights, (1, 0))))
            return x if hole is None else _add(g, x, emit.arithmetic(g, "mul", memory, hole))

        def sigmoid(x: Tensor) -> Tensor:
            return emit.unary("sigmoid")(g, x)

        def active(x: Tensor) -> Tensor:
            return activated(LiteContext(g, ()), x, options.FusedActivationFunction())

        forget = sigmoid(gate(1, c))
        coupled = fed[0] is None
        enter = emit.arithmetic(g, "sub", 1.0, forget) if coupled else sigmoid(gate(0, c))
        new = emit.arithmetic(g, "mul", enter, active(gate(2, c)))
        c = _clipped(g, _add(g, emit.arithmetic(g, "mul", forget, c), new), options.CellClip())
        h = emit.arithmetic(g, "mul", sigmoid(gate(3, c)), active(c))
        if self.projection[0] is not None:
            h = emit.matmul(g, h, permute(self.projection[0], (1, 0)))
            h = h if self.projection[1] is None else _add(g, h, self.projection[1])
            h = _clipped(g, h, options.ProjClip())
        return h, c


def _add(g: Builder, a: Tensor, b: Tensor) -> Tensor:
    return emit.arithmetic(g, "add", a, b)


def _clipped(g: Builder, x: Tensor, limit: float) -> Tensor:
    return emit_activation.clip(g, "clamp", x, low=-limit, high=limit) if limit else x


def _zeros(g: Builder, *shape: int) -> Tensor:
    return plain(g.constant(np.zeros(shape, np.float32)))


def _steps(time: int, backwards: bool) -> Iterator[int]:
    if time > MAX_STEPS:
        raise Unsupported(f"{time} steps, each of which would be code; {MAX_STEPS} are the most")
    return iter(reversed(range(time)) if backwards else range(time))


def _unrolled(
    g: Builder, x: Tensor, time_major: bool, backwards: bool, step: Callable[[Tensor], Tensor]
) -> Tensor:
    """Run a step over (batch, time, inputs), or (time, batch, inputs); return outputs likewise."""
    dim = 0 if time_major else 1
    outputs: list[Tensor] = []
    for at in _steps(x.shape[dim], backwards):
        y = step(emit.squeeze(g, emit.slice_dim(g, x, dim, start=at, stop=at + 1), [dim]))
        wide = (1, *y.shape) if time_major else (y.shape[0], 1, y.shape[1])
        outputs.append(reshape(g, y, wide))
    return emit.concat(g, outputs[::-1] if backwards else outputs, dim)


def _lstm(g: Builder, options: Any, x: Tensor, cell: Cell, backwards: bool = False) -> Tensor:
    """Run an LSTM from a zero state; one product with the input computes the gates of all steps."""
    if any(norm is not None for norm in cell.norms):
        raise Unsupported("an LSTM with layer norms; keep the layers apart when converting")
    last = cell.recurrent[1]
    assert last is not None
    batch = x.shape[1 if options.TimeMajor() else 0]
    fed: list[Maybe] = []
    for weights, bias in zip(cell.inputs, cell.biases, strict=True):
        y = None if weights is None else emit.matmul(g, x, permute(weights, (1, 0)))
        fed.append(y if y is None or bias is None else _add(g, y, bias))
    parts = [y for y in fed if y is not None]
    width = last.shape[0]
    state = (_zeros(g, batch, last.shape[1]), _zeros(g, batch, width))

    def step(row: Tensor) -> Tensor:
        nonlocal state
        cut = iter(range(0, width * len(parts), width))
        own = [
            None
            if y is None
            else emit.slice_dim(g, row, 1, start=(start := next(cut)), stop=start + width)
            for y in fed
        ]
        state = cell.step(g, options, own, *state)
        return state[0]

    return _unrolled(
        g, emit.concat(g, parts, 2), options.TimeMajor(), backwards=backwards, step=step
    )


WEIGHTS = dict.fromkeys((1, 2, 3, 4, 5, 6, 7, 8, 16), IN_OUT)


@lite_op("UNIDIRECTIONAL_SEQUENCE_LSTM", wishes=WEIGHTS)
def sequence_lstm(ctx: LiteContext, options: Any, x: Tensor, *tensors: Maybe) -> Tensor:
    """Return an LSTM's outputs at all steps."""
    return _lstm(ctx.g, options, x, Cell.of(tensors))


def _rnn(
    ctx: LiteContext, options: Any, x: Tensor, tensors: Sequence[Tensor], backwards: bool = False
) -> Tensor:
    """h' = f(W x + R h + b), from a state of zeros."""
    g, (weights, recurrent, bias) = ctx.g, tensors[:3]
    h = _zeros(g, x.shape[1 if options.TimeMajor() else 0], recurrent.shape[0])
    fed = _add(g, emit.matmul(g, x, permute(weights, (1, 0))), bias)

    def step(row: Tensor) -> Tensor:
        nonlocal h
        total = _add(g, row, emit.matmul(g, h, permute(recurrent, (1, 0))))
        h = activated(ctx, total, options.FusedActivationFunction())
        return h

    return _unrolled(g, fed, options.TimeMajor(), backwards=backwards, step=step)


@lite_op("UNIDIRECTIONAL_SEQUENCE_RNN", wishes={1: IN_OUT, 2: IN_OUT})
def sequence_rnn(ctx: LiteContext, options: Any, x: Tensor, *tensors: Tensor) -> Tensor:
    """Return a simple recurrent layer's outputs at all steps."""
    return _rnn(ctx, options, x, tensors)
