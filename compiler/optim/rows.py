"""SparseAdam: Adam that updates only the embedding rows that a batch reads."""

from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Value
from pockengine.compiler.ir.types import F32
from pockengine.compiler.optim.base import Results, Update
from pockengine.compiler.optim.basic import ANY, check, check_betas


@dataclass(frozen=True)
class SparseAdam:
    """PyTorch's SparseAdam: moments of rows that are not read stay unchanged.

    A row is what one index of the first dimension, in the framework's order, selects. A row with
    zero gradient counts as not read. Parameters other than embeddings train with Adam.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check(self, eps=ANY)
        check_betas(self)

    def update(self, update: Update) -> None:
        """Append an update of all rows, masked to those that were read."""
        g = update.g
        first, second = (update.correction(beta) for beta in self.betas)
        rate = g.mul(update.lr, g.div(g.sqrt(second), first))

        def formula(g: Builder, p: Value, dp: Value, *operands: Value) -> Results:
            rate, read, first, second = operands
            first = _towards(g, first, dp, g.mul(read, g.scalar(1 - self.betas[0])))
            second = _towards(g, second, g.square(dp), g.mul(read, g.scalar(1 - self.betas[1])))
            below = g.add(g.sqrt(second), g.scalar(self.eps))
            return g.sub(p, g.div(g.mul(g.mul(rate, read), first), below)), first, second

        states = (update.state("first"), update.state("second"))
        update.by_elements(formula, (rate, _read(update)), *states)


def _towards(g: Builder, old: Value, new: Value, share: Value) -> Value:
    """old + share (new - old)."""
    return g.add(old, g.mul(share, g.sub(new, old)))


def _read(update: Update) -> Value:
    """1 for each row with a gradient, else 0; f32 of the gradient's rank."""
    g, rank = update.g, len(update.grad.shape)
    order = update.param.permutation or tuple(range(rank))
    within = tuple(axis for axis in range(rank) if order[axis] != 0)
    size = g.abs(update.grad)
    size = g.reduce_max(size, axes=within, keepdims=True) if within else size
    return g.cast(g.gt(size, g.scalar(0.0)), dtype=F32.value)
