"""Data-dependent branches: compute all of them, and select one's results.

A branch that is not selected may result in NaN, also in its gradients, which are masked at its
inputs.
"""

from collections.abc import Sequence

from pockengine.compiler.ir import F32, Builder, Value
from pockengine.frontends import emit
from pockengine.frontends.emit.gradient import with_gradient
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor

MOST_BRANCHES = 16
"""Maximum branches, since each is computed in full."""


def conditions(g: Builder, index: Tensor, count: int) -> list[Tensor]:
    """Return, for each of `count` branches, whether the index selects it, after clamping."""
    if count > MOST_BRANCHES:
        raise Unsupported(
            f"{count} branches that data choose from, all of which would be computed; "
            f"{MOST_BRANCHES} are the most"
        )
    last = count - 1
    clamped = emit.arithmetic(g, "minimum", emit.arithmetic(g, "maximum", index, 0), last)
    return [emit.arithmetic(g, "eq", clamped, number) for number in range(count)]


def guarded(g: Builder, x: Tensor, taken: Tensor) -> Tensor:
    """Return a branch's input: gradients pass through it only if the branch is taken."""
    if x.dtype is not F32 or not emit.trains(g, x):
        return x

    def formula(dy: Value) -> Value:
        return g.where(taken.value, dy, g.scalar(0.0))

    # A separate op, because a branch may return what it read.
    same = Tensor(g.add(x.value, g.scalar(0.0)), x.layout)
    return with_gradient(g, same, (x.value, formula))


def chosen(g: Builder, taken: Sequence[Tensor], results: Sequence[Tensor]) -> Tensor:
    """Return the result of the selected branch, the last one by default."""
    found = results[-1]
    for here, result in zip(taken[-2::-1], results[-2::-1], strict=True):
        found = emit.choose(g, here, result, found)
    return found
