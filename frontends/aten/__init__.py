"""The PyTorch frontend's table of ATen operators; importing this package fills it."""

from pockengine.frontends.aten import elementwise, loss, nn, shape
from pockengine.frontends.aten.registry import RULES, Context, rule_for

__all__ = ["RULES", "Context", "elementwise", "loss", "nn", "rule_for", "shape"]
