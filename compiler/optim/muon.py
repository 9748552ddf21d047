"""Muon: orthogonalized momentum for matrices (kellerjordan.github.io/posts/muon).

Matches torch.optim.Muon, but computes in f32 where PyTorch rounds to bf16. The products of the
Newton-Schulz iteration are matmuls of the graph, on the shorter side of the matrix.
"""

import math
from dataclasses import dataclass, field, replace

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Value
from pockengine.compiler.optim.base import Optimizer, Results, Update
from pockengine.compiler.optim.basic import ANY, SHARE, AdamW, check
from pockengine.compiler.optim.formulas import shrunk
from pockengine.compiler.optim.layerwise import norm
from pockengine.errors import CompileError

ORIGINAL, MATCH_RMS_ADAMW = "original", "match_rms_adamw"


@dataclass(frozen=True)
class Muon:
    """Trains matrices; `others` trains every parameter of another rank (PyTorch refuses those).

    Give embeddings and the last layer another optimizer by `Groups`, as Muon's author does.
    `adjust_lr_fn` scales the rate of an A x B matrix: "original" by sqrt(max(1, A / B)),
    "match_rms_adamw" by 0.2 sqrt(max(A, B)), so that AdamW's rates fit.
    """

    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    eps: float = 1e-7
    ns_steps: int = 5
    adjust_lr_fn: str = ORIGINAL
    others: Optimizer = field(default=AdamW())

    def __post_init__(self) -> None:
        check(self, weight_decay=ANY, momentum=SHARE, eps=ANY, ns_steps=(1, 100))
        if self.adjust_lr_fn not in (ORIGINAL, MATCH_RMS_ADAMW):
            known = f"{ORIGINAL!r} or {MATCH_RMS_ADAMW!r}"
            raise CompileError(f"{self}: adjust_lr_fn must be {known}")

    def update(self, update: Update) -> None:
        """p = p (1 - lr d) - lr scale orthogonal(momentum)."""
        g, grad = update.g, update.grad
        if len(grad.shape) != 2:
            self.others.update(update)
            return
        moved = update.track("velocity", grad, g.scalar(1 - self.momentum))
        ahead = g.mul(g.sub(moved, grad), g.scalar(self.momentum))
        direction = self._orthogonal(g, g.add(grad, ahead) if self.nesterov else moved)
        scale = self._scale(update)

        def formula(g: Builder, p: Value, direction: Value, lr: Value) -> Results:
            decayed = shrunk(g, p, lr, self.weight_decay)
            return (g.sub(decayed, g.mul(g.mul(lr, g.scalar(scale)), direction)),)

        replace(update, grad=direction).by_elements(formula, (update.lr,))

    def _scale(self, update: Update) -> float:
        order = update.param.permutation or (0, 1)
        rows, columns = (update.grad.shape[order.index(axis)] for axis in (0, 1))
        if self.adjust_lr_fn == ORIGINAL:
            return math.sqrt(max(1.0, rows / columns))
        return 0.2 * math.sqrt(max(rows, columns))

    def _orthogonal(self, g: Builder, x: Value) -> Value:
        """X = a X + (b G + c G G) X from X / |X| on, with G = X X^T, or on the right if shorter."""
        a, b, c = (g.scalar(number) for number in self.ns_coefficients)
        x = g.div(x, g.maximum(norm(g, x), g.scalar(self.eps)))
        tall = x.shape[0] > x.shape[1]
        for _ in range(self.ns_steps):
            gram = g.matmul(x, x, transpose_a=tall, transpose_b=not tall)
            power = g.add(g.mul(gram, b), g.mul(g.matmul(gram, gram), c))
            turned = g.matmul(x, power) if tall else g.matmul(power, x)
            x = g.add(g.mul(x, a), turned)
        return x
