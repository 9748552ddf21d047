"""Lower batch norm to reductions and elementwise nodes, so that it fuses.

    forward   scale = gamma rstd;  shift = beta - mean scale;  y = x scale + shift
    backward  dx = scale (dy - (dbeta + xhat dgamma) / n) = scale dy + b x + c
              with b = -scale rstd dgamma / n and c = -scale dbeta / n - b mean

The coefficients are vectors over the channels: one small kernel in each pass.

A target without `moments` computes x - mean for the variance, and fuses little. There each node is
a kernel, so y and dx are computed from x - mean, which saves seven small kernels:

    forward   y = (x - mean) scale + beta
    backward  dx = scale dy + b (x - mean) + c  with b as above and c = -scale dbeta / n
"""

from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import lower
from pockengine.compiler.ops.norm import rstd_of
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.target import Target


@dataclass(frozen=True)
class DecomposeNorms(Pass):
    """Lower batch_norm and batch_norm_dx. Leaves: neither op in the graph."""

    target: Target

    def run(self, graph: Graph) -> None:
        fused = self.target.takes("moments")
        forward, backward = (_forward, _backward) if fused else (_centered, _centered_backward)
        lower(graph, {"batch_norm": forward, "batch_norm_dx": backward})


def _moments(g: Builder, node: Node) -> tuple[Value, Value, Value]:
    """Mean, variance and scale of each channel."""
    x, gamma, _ = node.operands
    mean, var = g.emit("moments", x).results
    lowered = Node(node.op, node.operands, (node.results[0], mean, var), node.attrs)
    return mean, var, g.mul(gamma, rstd_of(g, lowered))


def _forward(g: Builder, node: Node) -> tuple[Value, ...]:
    x, _, beta = node.operands
    mean, var, scale = _moments(g, node)
    shift = g.sub(beta, g.mul(mean, scale))  # before what reads scale: the vectors then fuse
    return g.add(g.mul(x, scale), shift), mean, var


def _backward(g: Builder, node: Node) -> tuple[Value, ...]:
    dy, x, mean, rstd, gamma, dgamma, dbeta = node.operands
    share = g.scalar(x.shape[-1] / x.type.size)
    scale = g.mul(gamma, rstd)
    b = g.neg(g.mul(g.mul(scale, rstd), g.mul(dgamma, share)))
    c = g.neg(g.add(g.mul(g.mul(scale, dbeta), share), g.mul(b, mean)))
    return (g.add(g.add(g.mul(scale, dy), g.mul(b, x)), c),)


def _centered(g: Builder, node: Node) -> tuple[Value, ...]:
    x, _, beta = node.operands
    mean, var, scale = _moments(g, node)
    return g.add(g.mul(g.sub(x, mean), scale), beta), mean, var


def _centered_backward(g: Builder, node: Node) -> tuple[Value, ...]:
    dy, x, mean, rstd, gamma, dgamma, dbeta = node.operands
    scale = g.mul(gamma, rstd)
    part = g.mul(scale, g.scalar(-x.shape[-1] / x.type.size))
    b, c = g.mul(g.mul(part, rstd), dgamma), g.mul(part, dbeta)
    return (g.add(g.add(g.mul(scale, dy), g.mul(b, g.sub(x, mean))), c),)
