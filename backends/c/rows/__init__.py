"""Reductions, norms, softmax and gathers over rows."""
