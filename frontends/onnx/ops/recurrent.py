"""ONNX's recurrent layers: LSTM, GRU and RNN, unrolled over their steps.

The products with the input are computed for all steps at once. After the end of a shorter sequence
the state does not change and the output is zero. A reversed pass starts each sequence at its own
end.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import activation
from pockengine.frontends.emit.meanings import emitter
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, permute, plain, reshape
from pockengine.frontends.onnx.ops.registry import OnnxContext, onnx_op

MOST_STEPS = 4096
"""Maximum steps of one layer: each becomes separate code."""
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Whether each of a layer's passes is reversed."""

Gate = Callable[[Builder, Tensor], Tensor]


def _affine(g: Builder, x: Tensor, alpha: float, beta: float) -> Tensor:
    return emit.arithmetic(g, "add", emit.weighted(g, x, alpha), beta)


def _hard_sigmoid(g: Builder, x: Tensor, alpha: float, beta: float) -> Tensor:
    return activation.clip(g, "clamp", _affine(g, x, alpha, beta), low=0.0, high=1.0)


def _scaled_tanh(g: Builder, x: Tensor, alpha: float, beta: float) -> Tensor:
    return emit.weighted(g, emit.unary("tanh")(g, emit.weighted(g, x, beta)), alpha)


ACTIVATIONS: dict[str, tuple[Callable[..., Tensor], tuple[float, ...]]] = {
    "affine": (_affine, (1.0, 0.0)),
    "elu": (activation.elu, (1.0,)),
    "hardsigmoid": (_hard_sigmoid, (0.2, 0.5)),
    "leakyrelu": (activation.leaky_relu, (0.01,)),
    "relu": (emitter("relu"), ()),
    "scaledtanh": (_scaled_tanh, (1.0, 1.0)),
    "sigmoid": (emitter("sigmoid"), ()),
    "softplus": (emitter("softplus"), ()),
    "softsign": (emitter("softsign"), ()),
    "tanh": (emitter("tanh"), ()),
    "thresholdedrelu": (activation.threshold, (1.0,)),
}
"""Activations by lowercase name, with the default alpha and beta."""


@dataclass(frozen=True)
class _Cell:
    """One direction of a layer: the parameters of each step.

    `w` (gates x hidden, inputs), `r` (gates x hidden, hidden), `b` (2 x gates x hidden) or None,
    `p` (3 x hidden) or None for the peepholes of an LSTM.
    """

    w: Tensor
    r: Tensor
    b: Tensor | None
    p: Tensor | None
    gates: Sequence[Gate]
    clip: float | None
    hidden: int

    def active(self, g: Builder, which: int, x: Tensor) -> Tensor:
        """Apply an activation to a gate's sum, clipped first if required."""
        if self.clip is not None:
            x = activation.clip(g, "clamp", x, low=-self.clip, high=self.clip)
        return self.gates[which](g, x)

    def part(self, g: Builder, x: Tensor, first: int, last: int) -> Tensor:
        """Return the parts of x's last dimension from one gate to another."""
        return emit.slice_dim(g, x, -1, start=first * self.hidden, stop=last * self.hidden)


State = tuple[Tensor, ...]
Step = Callable[[Builder, _Cell, Tensor, State], State]
"""From a cell, W x + the bias of the input, and the state to the new state."""


@dataclass(frozen=True)
class _Kind:
    """A kind of layer: gates, activations by default, and one step."""

    gates: int
    activations: tuple[str, ...]
    step: Step


def _recurrent(g: Builder, cell: _Cell, x: Tensor, weights: Tensor, h: Tensor) -> Tensor:
    """x + h weightsᵀ, the weights being rows of R."""
    return emit.arithmetic(g, "add", x, emit.matmul(g, h, permute(weights, (1, 0))))


def _rnn_step(g: Builder, cell: _Cell, x: Tensor, state: State) -> State:
    """h' = f(W x + R h + b)."""
    return (cell.active(g, 0, _recurrent(g, cell, x, weights=cell.r, h=state[0])),)


def _lstm_step(g: Builder, cell: _Cell, x: Tensor, state: State, coupled: bool = False) -> State:
    """Gates i, o, f and c in ONNX's order: c' = f c + i g(...), h' = o h(c')."""
    h, c = state
    total = _recurrent(g, cell, x, weights=cell.r, h=h)
    i, o, f, new = (cell.part(g, total, gate, gate + 1) for gate in range(4))

    def peephole(gate: Tensor, which: int, memory: Tensor) -> Tensor:
        if cell.p is None:
            return gate
        hole = emit.slice_dim(
            g, cell.p, 0, start=which * cell.hidden, stop=(which + 1) * cell.hidden
        )
        return emit.arithmetic(g, "add", gate, emit.arithmetic(g, "mul", hole, memory))

    i = cell.active(g, 0, peephole(i, 0, c))
    f = emit.arithmetic(g, "sub", 1.0, i) if coupled else cell.active(g, 0, peephole(f, 2, c))
    new = cell.active(g, 1, new)
    memory = emit.arithmetic(
        g, "add", emit.arithmetic(g, "mul", f, c), emit.arithmetic(g, "mul", i, new)
    )
    o = cell.active(g, 0, peephole(o, 1, memory))
    return emit.arithmetic(g, "mul", o, cell.gates[2](g, memory)), memory


def _gru_step(g: Builder, cell: _Cell, x: Tensor, state: State, after: bool = False) -> State:
    """Gates z, r and h in ONNX's order: h' = (1 - z) g(...) + z h.

    `after` is linear_before_reset: the reset gate then acts on R h + b, else on h.
    """
    (h,), n = state, cell.hidden
    rows = (
        emit.slice_dim(g, cell.r, 0, start=0, stop=2 * n),
        emit.slice_dim(g, cell.r, 0, start=2 * n, stop=3 * n),
    )
    both = cell.active(g, 0, _recurrent(g, cell, cell.part(g, x, 0, 2), weights=rows[0], h=h))
    z, r = cell.part(g, both, 0, 1), cell.part(g, both, 1, 2)
    new = cell.part(g, x, 2, 3)
    if after:
        recurrent = emit.matmul(g, h, permute(rows[1], (1, 0)))
        if cell.b is not None:
            recurrent = emit.arithmetic(
                g, "add", recurrent, emit.slice_dim(g, cell.b, 0, start=5 * n, stop=6 * n)
            )
        new = emit.arithmetic(g, "add", new, emit.arithmetic(g, "mul", r, recurrent))
    else:
        new = _recurrent(g, cell, new, weights=rows[1], h=emit.arithmetic(g, "mul", r, h))
    new = cell.active(g, 1, new)
    update = emit.arithmetic(g, "mul", emit.arithmetic(g, "sub", 1.0, z), new)
    return (emit.arithmetic(g, "add", update, emit.arithmetic(g, "mul", z, h)),)


def _input_bias(g: Builder, cell: _Cell, kind: _Kind, after: bool) -> Tensor | None:
    """Return the bias added to W x for all steps: both biases, except for the reset gates."""
    if cell.b is None:
        return None
    size = kind.gates * cell.hidden
    own, other = (emit.slice_dim(g, cell.b, 0, start=at, stop=at + size) for at in (0, size))
    if not after:
        return emit.arithmetic(g, "add", own, other)
    early = 2 * cell.hidden
    both = [emit.slice_dim(g, part, 0, start=0, stop=early) for part in (own, other)]
    late = emit.slice_dim(g, own, 0, start=early, stop=size)
    return emit.concat(g, [emit.arithmetic(g, "add", *both), late], 0)


@dataclass(frozen=True)
class _Layer:
    """A layer's inputs, time first: `x` (time, batch, inputs), lengths (batch,) or None."""

    x: Tensor
    lengths: Tensor | None
    kind: _Kind
    after: bool

    def run(self, g: Builder, cell: _Cell, state: State, backwards: bool) -> tuple[Tensor, State]:
        """Return the outputs of all steps, (time, batch, hidden), and the last state."""
        time, batch, inputs = self.x.shape
        rows = reshape(g, self.x, (time * batch, inputs))
        fed = emit.matmul(g, rows, permute(cell.w, (1, 0)))
        bias = _input_bias(g, cell, self.kind, self.after)
        fed = fed if bias is None else emit.arithmetic(g, "add", fed, bias)
        outputs: list[Tensor] = []
        for at in reversed(range(time)) if backwards else range(time):
            own = emit.slice_dim(g, fed, 0, start=at * batch, stop=(at + 1) * batch)
            new = self.kind.step(g, cell, own, state)
            output = new[0]
            if self.lengths is not None:
                here = reshape(g, emit.arithmetic(g, "gt", self.lengths, at), (batch, 1))
                new = tuple(emit.choose(g, here, *pair) for pair in zip(new, state, strict=True))
                output = emit.choose(g, here, output, 0.0)
            state = new
            outputs.append(reshape(g, output, (1, batch, cell.hidden)))
        return emit.concat(g, outputs[::-1] if backwards else outputs, 0), state


@dataclass(frozen=True)
class _Options:
    """Attributes that the three operators share, as ONNX names them."""

    activation_alpha: list[float] | None = None
    activation_beta: list[float] | None = None
    activations: list[str] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0


ATTRIBUTES = tuple(field.name for field in fields(_Options))


def _gates(options: _Options, kind: _Kind, passes: int) -> Iterator[Sequence[Gate]]:
    """Return the activations of each pass; alpha and beta go to those that have them, in order."""
    names = options.activations or list(kind.activations) * passes
    if len(names) != len(kind.activations) * passes:
        raise Unsupported(f"{len(names)} activations for {passes} passes")
    alphas, betas = iter(options.activation_alpha or ()), iter(options.activation_beta or ())
    gates: list[Gate] = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise Unsupported(f"the activation {name!r}")
        rule, defaults = ACTIVATIONS[name.lower()]
        numbers = [next(v, d) for v, d in zip((alphas, betas), defaults, strict=False)]
        gates.append(partial(_applied, rule, numbers))
    count = len(kind.activations)
    return (gates[at : at + count] for at in range(0, len(gates), count))


def _applied(rule: Callable[..., Tensor], numbers: list[float], g: Builder, x: Tensor) -> Tensor:
    return rule(g, x, *numbers)


def _known_whole(g: Builder, lengths: Tensor | None, time: int) -> Tensor | None:
    """Drop constant lengths that equal the whole sequences'."""
    known = None if lengths is None else g.graph.constants.get(lengths.value)
    return None if known is not None and (known == time).all() else lengths


def _build(
    ctx: OnnxContext,
    kind: _Kind,
    options: _Options,
    tensors: Sequence[Tensor | None],
    initial: Sequence[Tensor | None],
    after: bool = False,
) -> list[Tensor]:
    """Build a layer of x, w, r, b, lengths and p; return all outputs and each last state."""
    g = ctx.g
    x, w, r, b, lengths, p = tensors
    assert x is not None  # ONNX requires these three
    assert w is not None
    assert r is not None
    if options.direction not in DIRECTIONS:
        raise Unsupported(f"the direction {options.direction!r}")
    passes = DIRECTIONS[options.direction]
    x = permute(x, (1, 0, 2)) if options.layout else x
    time, hidden = x.shape[0], r.shape[-1]
    if time > MOST_STEPS:
        raise Unsupported(f"{time} steps, each of which would be code; {MOST_STEPS} are the most")
    if w.shape[:2] != (len(passes), kind.gates * hidden):
        raise Unsupported(f"weights of {list(w.shape)} for {len(passes)} directions of {hidden}")
    layer = _Layer(x, _known_whole(g, lengths, time), kind, after)
    results: list[tuple[Tensor, State]] = []
    for number, (backwards, gates) in enumerate(
        zip(passes, _gates(options, kind, len(passes)), strict=True)
    ):
        bias, holes = (None if part is None else _row(g, part, number) for part in (b, p))
        weights = _row(g, w, number), _row(g, r, number)
        cell = _Cell(*weights, bias, holes, gates=gates, clip=options.clip, hidden=hidden)
        state = tuple(
            _initial(g, part, number, layout=options.layout, batch=x.shape[1], hidden=hidden)
            for part in initial
        )
        results.append(layer.run(g, cell, state, backwards))
    return _joined(g, results, bool(options.layout))


def _joined(g: Builder, results: list[tuple[Tensor, State]], batch_first: bool) -> list[Tensor]:
    """Return the outputs and last states of all passes, stacked along a new dimension."""
    time, batch, hidden = results[0][0].shape
    y = emit.concat(g, [reshape(g, out, (time, 1, batch, hidden)) for out, _ in results], 1)
    last = [
        emit.concat(g, [reshape(g, state, (1, batch, hidden)) for state in states], 0)
        for states in zip(*(states for _, states in results), strict=True)
    ]
    if batch_first:
        return [permute(y, (2, 0, 1, 3)), *(permute(part, (1, 0, 2)) for part in last)]
    return [y, *last]


def _initial(
    g: Builder, state: Tensor | None, number: int, layout: int, batch: int, hidden: int
) -> Tensor:
    """Return the initial state of a pass, (batch, hidden); zeros by default."""
    if state is None:
        return plain(g.constant(np.zeros((batch, hidden), np.float32)))
    return _row(g, permute(state, (1, 0, 2)) if layout else state, number)


def _row(g: Builder, x: Tensor, number: int) -> Tensor:
    """Return one of x's first dimension."""
    return emit.squeeze(g, emit.slice_dim(g, x, 0, start=number, stop=number + 1), [0])


@onnx_op("RNN", attributes=ATTRIBUTES)
def rnn(
    ctx: OnnxContext,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    **options: Any,
) -> list[Tensor]:
    """Run a plain recurrent layer; return all outputs and the last one."""
    kind = _Kind(1, ("tanh",), _rnn_step)
    return _build(ctx, kind, _Options(**options), tensors=(x, w, r, b, lengths, None), initial=(h,))


@onnx_op("GRU", attributes=ATTRIBUTES)
def gru(
    ctx: OnnxContext,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    *,
    linear_before_reset: int = 0,
    **options: Any,
) -> list[Tensor]:
    """Run a layer of gated recurrent units; return all outputs and the last one."""
    after = bool(linear_before_reset)
    kind = _Kind(3, ("sigmoid", "tanh"), partial(_gru_step, after=after))
    return _build(
        ctx,
        kind,
        _Options(**options),
        tensors=(x, w, r, b, lengths, None),
        initial=(h,),
        after=after,
    )


@onnx_op("LSTM", attributes=ATTRIBUTES)
def lstm(
    ctx: OnnxContext,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    input_forget: int = 0,
    **options: Any,
) -> list[Tensor]:
    """Run a layer of long short-term memory; return all outputs, the last one and the last
    memory."""
    step = partial(_lstm_step, coupled=bool(input_forget))
    kind = _Kind(4, ("sigmoid", "tanh", "tanh"), step)
    return _build(ctx, kind, _Options(**options), tensors=(x, w, r, b, lengths, p), initial=(h, c))
