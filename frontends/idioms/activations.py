"""Recognize activations that a framework writes differently."""

from pockengine.compiler.ir import Value
from pockengine.compiler.ir.graph import Node
from pockengine.frontends.idioms.finder import Finder, made_by


def gelu(finder: Finder, node: Node) -> Value | None:
    """x / 2 erfc(-x c)  =>  x / 2 (1 + erf(x c)), as JAX spells the exact one.

    The digits that erf loses far out are below those of the neighboring x / 2 there.
    """
    for half, share in (node.operands, node.operands[::-1]):
        complement = made_by(share, "erfc")
        scaled = complement.operands[0].node if complement else None
        split = finder.split(scaled) if scaled and scaled.op == "mul" else None
        negated = made_by(split[0], "neg") if split else None
        if split is None or negated is None or not _is_half(finder, half, negated.operands[0]):
            continue
        g = finder.g
        inner = g.mul(negated.operands[0], g.scalar(split[1]))
        return g.mul(half, g.add(g.erf(inner), g.scalar(1.0)))
    return None


def _is_half(finder: Finder, half: Value, x: Value) -> bool:
    """Return whether a value is x / 2."""
    node = half.node
    split = finder.split(node) if node is not None and node.op == "mul" else None
    return split is not None and split[0] is x and split[1] == 0.5
