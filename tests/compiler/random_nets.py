"""Random small graphs whose params are shared, tied, multiplied, factorized or read through views.

`draw_net` is deterministic in its seed. Sizes are tiny: only the order of reads and updates of
params matters.
"""

from collections.abc import Callable

import numpy as np

from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType, Value

WIDTHS = (1, 2, 3, 4)
DEPTH = 2
"""Maximum nesting of expressions that replace a weight."""


class RandomNet:
    """Draw params, expressions of params, and layers over them."""

    def __init__(self, rng: np.random.Generator, name: str) -> None:
        self.rng, self.g = rng, Builder(Graph(name))
        self.params: list[Value] = []
        self.batch = int(rng.choice((1, 3)))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def width(self) -> int:
        return int(self.rng.choice(WIDTHS))

    def new_param(self, *shape: int) -> Value:
        data = self.rng.normal(0.0, 0.6, shape).astype(np.float32)
        value = self.g.param(f"p{len(self.params)}.weight", data)
        self.params.append(value)
        return value

    def new_state(self, *shape: int) -> Value:
        """A param that does not train, such as running statistics."""
        name = f"state{len(self.g.graph.params)}"
        return self.g.param(name, np.zeros(shape, np.float32), trainable=False)

    def param(self, *shape: int) -> Value:
        """A param of this shape: often an existing one, or a view of one."""
        size = int(np.prod(shape))
        alike = [value for value in self.params if value.type.size == size]
        if not alike or self.chance(0.6):
            return self.new_param(*shape)
        value = alike[int(self.rng.integers(len(alike)))]
        return value if value.shape == shape else self.g.reshape(value, shape=shape)

    def weight(self, rows: int, columns: int, depth: int = 0) -> Value:
        """A matrix: a param, or an expression of several params."""
        rules = EXPRESSIONS if depth < DEPTH else EXPRESSIONS[:1]
        rule = rules[int(self.rng.integers(len(rules)))]
        return rule(self, rows, columns, depth + 1)


def _plain(net: RandomNet, rows: int, columns: int, depth: int) -> Value:
    return net.param(rows, columns)


def _low_rank(net: RandomNet, rows: int, columns: int, depth: int) -> Value:
    """w + s B A, declared in any order."""
    rank = net.width()
    parts: dict[str, Value] = {}
    shapes = {"w": (rows, columns), "a": (rank, columns), "b": (rows, rank)}
    for key in net.rng.permutation(list(shapes)):
        parts[key] = net.param(*shapes[key])
    product = net.g.mul(net.g.matmul(parts["b"], parts["a"]), net.g.scalar(2.0))
    return net.g.add(parts["w"], product)


def _factorized(net: RandomNet, rows: int, columns: int, depth: int) -> Value:
    rank = net.width()
    second = net.weight(rank, columns, depth)
    return net.g.matmul(net.weight(rows, rank, depth), second)


def _transposed(net: RandomNet, rows: int, columns: int, depth: int) -> Value:
    return net.g.transpose(net.weight(columns, rows, depth), perm=(1, 0))


def _sliced(net: RandomNet, rows: int, columns: int, depth: int) -> Value:
    whole, begin = net.param(rows + 2, columns), int(net.rng.integers(3))
    return net.g.slice(whole, start=(begin, 0), stop=(begin + rows, columns), step=(1, 1))


def _multiplied(net: RandomNet, rows: int, columns: int, depth: int) -> Value:
    """A product of two weights, or of a weight with itself."""
    first = net.weight(rows, columns, depth)
    other = first if net.chance(0.5) else net.weight(rows, columns, depth)
    return net.g.mul(first, other)


def _gram(net: RandomNet, rows: int, columns: int, depth: int) -> Value:
    w = net.param(rows, columns)
    return net.g.matmul(net.g.matmul(w, w, transpose_b=True), w)


def _squashed(net: RandomNet, rows: int, columns: int, depth: int) -> Value:
    return net.g.tanh(net.weight(rows, columns, depth))


def _scaled(net: RandomNet, rows: int, columns: int, depth: int) -> Value:
    """A weight times a trained scalar, or times a trained vector over its columns."""
    shape = () if net.chance(0.5) else (columns,)
    return net.g.mul(net.weight(rows, columns, depth), net.param(*shape))


def _gathered_rows(net: RandomNet, rows: int, columns: int, depth: int) -> Value:
    table = net.param(rows + 1, columns)
    index = net.rng.integers(0, rows + 1, rows)
    return net.g.take(table, net.g.constant(index, "rows"), axis=0)


def _with_stop_gradient(net: RandomNet, rows: int, columns: int, depth: int) -> Value:
    w = net.param(rows, columns)
    return net.g.mul(net.g.stop_gradient(w), net.weight(rows, columns, depth))


EXPRESSIONS: tuple[Callable[[RandomNet, int, int, int], Value], ...] = (
    _plain,
    _low_rank,
    _low_rank,
    _factorized,
    _factorized,
    _transposed,
    _sliced,
    _multiplied,
    _gram,
    _squashed,
    _scaled,
    _gathered_rows,
    _with_stop_gradient,
)


def _linear(net: RandomNet, x: Value) -> Value:
    width = net.width()
    y = net.g.matmul(x, net.weight(x.shape[1], width))
    return net.g.tanh(net.g.add(y, net.param(width)) if net.chance(0.6) else y)


def _tied(net: RandomNet, x: Value) -> Value:
    """Multiply by a weight, then by its transpose."""
    w = net.param(x.shape[1], net.width())
    y = net.g.tanh(net.g.matmul(x, w))
    return net.g.matmul(y, w, transpose_b=True)


def _residual(net: RandomNet, x: Value) -> Value:
    return net.g.add(x, net.g.tanh(net.g.matmul(x, net.weight(x.shape[1], x.shape[1]))))


def _gated(net: RandomNet, x: Value) -> Value:
    return net.g.mul(x, net.g.sigmoid(net.param(x.shape[1])))


def _recurrent(net: RandomNet, x: Value) -> Value:
    """Unroll a few steps of an unbatched cell: plain, GRU or LSTM."""
    size = net.width()
    cell = CELLS[int(net.rng.integers(len(CELLS)))]
    names = [(net.param(x.shape[1], size), net.param(size, size)) for _ in range(4)]
    h = c = net.g.constant(np.zeros((1, size), np.float32), "zeros")
    steps = []
    for row in range(x.shape[0]):
        step = net.g.slice(x, start=(row, 0), stop=(row + 1, x.shape[1]), step=(1, 1))
        gates = [
            net.g.add(net.g.matmul(step, w), net.g.matmul(h, u))
            for w, u in names[: GATES[cell.__name__]]
        ]
        h, c = cell(net.g, gates, h, c)
        steps.append(h)
    return steps[0] if len(steps) == 1 else net.g.emit("concat", *steps, axis=0).result


def _rnn(g: Builder, gates: list[Value], h: Value, c: Value) -> tuple[Value, Value]:
    return g.tanh(gates[0]), c


def _gru(g: Builder, gates: list[Value], h: Value, c: Value) -> tuple[Value, Value]:
    reset, keep = g.sigmoid(gates[0]), g.sigmoid(gates[1])
    new = g.tanh(g.mul(reset, gates[2]))
    return g.add(new, g.mul(keep, g.sub(h, new))), c


def _lstm(g: Builder, gates: list[Value], h: Value, c: Value) -> tuple[Value, Value]:
    into, keep, out = (g.sigmoid(gate) for gate in gates[:3])
    c = g.add(g.mul(keep, c), g.mul(into, g.tanh(gates[3])))
    return g.mul(out, g.tanh(c)), c


def _normed(net: RandomNet, x: Value) -> Value:
    """Batch norm in training mode, with a running mean."""
    width = x.shape[1]
    scale, shift = net.param(width), net.param(width)
    running = net.new_state(width)
    y, mean, _ = net.g.emit("batch_norm", x, scale, shift, eps=0.1).results
    net.g.emit("ema_update", running, mean, momentum=0.1)
    return y


def _centered(net: RandomNet, x: Value) -> Value:
    """Subtract a running mean, then update it."""
    center = net.new_state(x.shape[1])
    y = net.g.sub(x, center)
    net.g.emit("ema_update", center, net.g.reduce_mean(x, axes=(0,)), momentum=0.5)
    return net.g.mul(y, net.param(x.shape[1]))


CELLS = (_rnn, _gru, _lstm)
GATES = {"_rnn": 1, "_gru": 3, "_lstm": 4}
LAYERS: tuple[Callable[[RandomNet, Value], Value], ...] = (
    _linear,
    _tied,
    _residual,
    _gated,
    _recurrent,
    _normed,
    _centered,
)


def draw_net(seed: int, parts: int = 1) -> Graph:
    """Return a random forward graph: the sum of `parts` losses over possibly shared params."""
    rng = np.random.default_rng(seed)
    net = RandomNet(rng, f"net{seed}")
    losses = [_loss(net) for _ in range(parts)]
    if net.chance(0.2):
        losses.append(_decay(net))
    total = losses[0]
    for loss in losses[1:]:
        total = net.g.add(total, loss)
    net.g.output("loss", total)
    return net.g.graph


def _loss(net: RandomNet) -> Value:
    return _loss_of_layers(net) if net.chance(0.75) else _loss_of_params(net)


def _decay(net: RandomNet) -> Value:
    """The sum of squares of a param."""
    w = net.params[int(net.rng.integers(len(net.params)))]
    axes, square = tuple(range(len(w.shape))), net.g.square(w)
    total = net.g.reduce_sum(square, axes=axes) if axes else square
    return net.g.mul(total, net.g.scalar(0.1))


def _loss_of_layers(net: RandomNet) -> Value:
    g, table = net.g, None
    name = f"x{len(g.graph.inputs)}"
    if net.chance(0.3):  # an embedding, whose table may also produce the logits
        ids = g.input(name, TensorType(I64, (net.batch,)))
        table = net.param(4, net.width())
        y = g.take(table, ids, axis=0)
    else:
        y = g.input(name, TensorType(F32, (net.batch, net.width())))
    for _ in range(int(net.rng.integers(1, 4))):
        y = LAYERS[int(net.rng.integers(len(LAYERS)))](net, y)
    if table is not None and net.chance(0.5):
        if y.shape[1] != table.shape[1]:
            y = g.matmul(y, net.param(y.shape[1], table.shape[1]))
        y = g.matmul(y, table, transpose_b=True)
    g.output(f"{name}.output", y)
    if not net.params:
        y = _linear(net, y)
    return g.reduce_mean(g.square(y), axes=(0, 1), keepdims=False)


def _loss_of_params(net: RandomNet) -> Value:
    """Matrix factorization, without data."""
    rows, columns = net.width(), net.width()
    expected = net.g.constant(net.rng.normal(0, 1, (rows, columns)).astype(np.float32), "wanted")
    error = net.g.sub(net.weight(rows, columns), expected)
    return net.g.reduce_mean(net.g.square(error), axes=(0, 1), keepdims=False)
