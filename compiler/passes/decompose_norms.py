"""Batch norm lowered to reductions and elementwise nodes, so that it fuses like everything else.

    forward   scale = gamma rstd;  shift = beta - mean scale;  y = x scale + shift
    backward  dx = scale (dy - (dbeta + xhat dgamma) / n) = scale dy + b x + c
              with b = -scale rstd dgamma / n and c = -scale dbeta / n - b mean

The coefficients are vectors over the channels: one small kernel each way.
"""

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import lower
from pockengine.compiler.ops.norm import rstd_of


def decompose_norms(graph: Graph) -> None:
    """Lower batch_norm and batch_norm_dx. Leaves: neither op in the graph."""
    lower(graph, {"batch_norm": _forward, "batch_norm_dx": _backward})


def _forward(g: Builder, node: Node) -> tuple[Value, ...]:
    x, gamma, beta = node.operands
    mean, var = g.emit("moments", x).results
    lowered = Node(node.op, node.operands, (node.results[0], mean, var), node.attrs)
    scale = g.mul(gamma, rstd_of(g, lowered))
    shift = g.sub(beta, g.mul(mean, scale))  # before what reads scale: the vectors then fuse
    return g.add(g.mul(x, scale), shift), mean, var


def _backward(g: Builder, node: Node) -> tuple[Value, ...]:
    dy, x, mean, rstd, gamma, dgamma, dbeta = node.operands
    share = g.scalar(x.shape[-1] / x.type.size)
    scale = g.mul(gamma, rstd)
    b = g.neg(g.mul(g.mul(scale, rstd), g.mul(dgamma, share)))
    c = g.neg(g.add(g.mul(g.mul(scale, dbeta), share), g.mul(b, mean)))
    return (g.add(g.add(g.mul(scale, dy), g.mul(b, x)), c),)
