"""Updates of params, and weights in blocks."""
